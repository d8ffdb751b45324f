"""Is a picture shown as its file says, in all eight orientations, and as FFmpeg turns it?"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache, partial
from itertools import product
from pathlib import Path

import av
import numpy as np
import pytest

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video import open_video
from tests.support.keyframes.clip_files import add_orientation, copy_video, edit_packets
from tests.support.keyframes.damage import set_display_matrix
from tests.support.keyframes.synthetic import write_numbered_clip

# (a, b, c, d): the stored point (x, y) is shown at (a x + c y, b x + d y).
MATRICES = [(a, 0, 0, d) for a, d in product((1, -1), repeat=2)] + [(0, b, c, 0) for b, c in product((1, -1), repeat=2)]
# The first FFmpeg that follows the orientation within the pictures.
_FIRST_WITH_MESSAGES = 6
# Of pictures of 48x32 the libx265 of PyAV 15 writes past its memory.
_N_FRAMES, _WIDTH, _HEIGHT = 30, 96, 64


@pytest.fixture(scope="module")
def upright(tmp_path_factory):
    """A clip, its pictures, and the same in HEVC."""
    folder = tmp_path_factory.mktemp("upright")
    settings = {"width": _WIDTH, "height": _HEIGHT, "gop": 10}
    write_numbered_clip(folder / "h264.mp4", _N_FRAMES, **settings)
    write_numbered_clip(
        folder / "hevc.mp4", _N_FRAMES, codec="libx265", options={"x265-params": "log-level=error"}, **settings
    )
    return folder


def _frames(path: Path) -> np.ndarray:
    with open_video(path) as video:
        return video.read(np.arange(video.info.n_frames))


def _moved(pictures: np.ndarray, matrix: tuple[int, int, int, int]) -> np.ndarray:
    """Move each pixel to where the matrix shows it, and the smallest coordinates to 0."""
    a, b, c, d = matrix
    rows, columns = np.indices(pictures.shape[1:3])
    x, y = a * columns + c * rows, b * columns + d * rows
    moved = np.empty((len(pictures), int(np.ptp(y)) + 1, int(np.ptp(x)) + 1, 3), dtype=np.uint8)
    moved[:, y - y.min(), x - x.min()] = pictures
    return moved


@lru_cache(maxsize=1)
def _ffmpeg_version() -> int:
    """Return the main version of the `ffmpeg` on this machine, 0 without one."""
    if shutil.which("ffmpeg") is None:
        return 0
    text = subprocess.run(["ffmpeg", "-version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"version n?(\d+)", text)
    return int(match[1]) if match else 0


def _shown_by_ffmpeg(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    arguments = ["-v", "error", "-i", str(path), "-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(["ffmpeg", *arguments], capture_output=True, check=True).stdout
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _is_as_ffmpeg_shows_it(path: Path, pictures: np.ndarray, *, first_version: int = 1) -> bool:
    """Compare with FFmpeg's own turning, if there is one that does it; the two convert colours alike to 2 levels."""
    if _ffmpeg_version() < first_version:
        return True
    difference = pictures.astype(int) - _shown_by_ffmpeg(path, pictures.shape)
    return bool(np.abs(difference).max() <= 2)


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_the_matrix_of_a_track_turns_and_mirrors(matrix, suffix, upright, tmp_path):
    turned = set_display_matrix(upright / "h264.mp4", tmp_path / "turned.mp4", matrix=matrix)
    # Matroska states a turn and a mirroring in degrees, which PyAV's muxer of some versions leaves out.
    path = turned if suffix == ".mp4" else copy_video(turned, tmp_path / f"turned{suffix}")
    with av.open(str(path)) as container:
        is_stated = next(container.decode(video=0)).side_data.get("DISPLAYMATRIX") is not None
    assert is_stated or suffix == ".mkv" or matrix == (1, 0, 0, 1)
    pictures = _frames(path)
    if is_stated:
        np.testing.assert_array_equal(pictures, _moved(_frames(upright / "h264.mp4"), matrix))
    assert suffix == ".mkv" or _is_as_ffmpeg_shows_it(path, pictures)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize(("n_turns", "mirrors"), list(product(range(4), (False, True))))
def test_a_message_within_the_pictures_turns_and_mirrors(n_turns, mirrors, codec, suffix, upright, tmp_path):
    edit = partial(add_orientation, codec=codec, n_turns=n_turns, mirrors=mirrors, flips=False)
    edited = edit_packets(
        tmp_path / "edited.mp4", make=lambda path: Path(shutil.copy(upright / f"{codec}.mp4", path)), edit=edit
    )
    path = edited if suffix == ".mp4" else copy_video(edited, tmp_path / f"edited{suffix}")
    stored = _frames(upright / f"{codec}.mp4")
    expected = np.rot90(stored[:, :, ::-1] if mirrors else stored, n_turns, axes=(1, 2))
    pictures = _frames(path)
    np.testing.assert_array_equal(pictures, expected)
    assert _is_as_ffmpeg_shows_it(path, pictures, first_version=_FIRST_WITH_MESSAGES)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_the_matrix_of_the_track_goes_before_a_message_within_the_pictures(codec, upright, tmp_path):
    """A front camera may state a mirroring for the track and a turn within the pictures."""
    edit = partial(add_orientation, codec=codec, n_turns=1, mirrors=False, flips=False)
    edited = edit_packets(
        tmp_path / "edited.mp4", make=lambda path: Path(shutil.copy(upright / f"{codec}.mp4", path)), edit=edit
    )
    for matrix in MATRICES[1:]:
        path = set_display_matrix(edited, tmp_path / "both.mp4", matrix=matrix)
        np.testing.assert_array_equal(_frames(path), _moved(_frames(upright / f"{codec}.mp4"), matrix))


@pytest.mark.parametrize("matrix", MATRICES)
def test_a_backend_shows_the_same_orientation_or_refuses_a_mirrored_one(matrix, backend, upright, tmp_path):
    path = set_display_matrix(upright / "h264.mp4", tmp_path / "turned.mp4", matrix=matrix)
    a, b, c, d = matrix
    if backend != "pyav" and a * d - b * c < 0:
        with pytest.raises(VideoError, match=r"mirrored, which .* takes for a turn; use backend pyav"):
            open_video(path, backend=backend)
        return
    with open_video(path, backend=backend) as video:
        assert np.abs(video.read([0, 7]).astype(int) - _frames(path)[[0, 7]]).mean() < 3
