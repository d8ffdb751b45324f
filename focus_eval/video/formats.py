"""Opens a video file with FFmpeg, and no other file or address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av

from focus_eval.errors import VideoError

# Demuxers of files that hold their pictures themselves. Left out are playlists and scripts (hls, dash, concat, imf,
# sdp), which open what they name, numbered pictures (image2), which open their neighbours, and text as pictures (tty).
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,flv,live_flv,kux,asf,asf_o,ogg,nut,mxf,gxf,lxf,"
    "ivf,obu,av1,h264,hevc,vvc,h261,h263,vc1,vc1test,mjpeg,mpjpeg,mjpeg_2000,dirac,cavsvideo,avs2,avs3,rm,ivr,dv,wtv,nsv,"
    "pva,ty,pmp,gif,apng,jpegxl_anim,yuv4mpegpipe,amv,swf,dhav,mvi,mv,roq,bink,smk,flic,film_cpk,nuv,rl2,vmd,xwma"
)
_PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<MPD", b"<?xml", b"v=0", b"[playlist]", b"[Reference]", b"<asx", b"file '")


def open_container(path: Path, options: dict[str, str]) -> Any:
    """Return the open FFmpeg container of `path`; tags that are not UTF-8 are read with replacement characters.

    Args:
        options: further options of the demuxer, as FFmpeg names them.

    Raises:
        VideoError: a playlist or script that names other files.
        av.FFmpegError, OSError: no demuxer of a plain video file opens it.
    """
    if is_playlist(path):
        raise VideoError(f"{path}: a playlist or script, not a video; name the video itself")
    allowed = {"format_whitelist": _FORMATS, "protocol_whitelist": "file"}
    # With the prefix, a name such as `concat:a|b` or `http:x` is a file's name and nothing else.
    # Not `options`: PyAV frees one set of those per stream, also for streams that are found only while it opens.
    return av.open(f"file:{path}", container_options={**allowed, **options}, metadata_errors="replace")


def is_playlist(path: Path) -> bool:
    """Tell whether a file begins as a playlist or a concat script does."""
    with path.open("rb") as file:
        head = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return any(head.startswith(mark.lower()) for mark in _PLAYLISTS)
