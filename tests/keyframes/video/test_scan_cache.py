"""Is what opening learned of a video kept for other processes, and never believed of another file?"""

from __future__ import annotations

import os

import numpy as np
import pytest

from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.video import open_video, scan
from focus_eval.keyframes.video.scan import scan_bytes, scan_file, scan_from_bytes
from tests.support.keyframes.clips import write_clip

_NAMES = ("constant.mp4", "b_frames.mp4", "edit_list.mp4", "turned_90.mp4", "h264.avi", "h264.ts", "vp8_hidden.webm")


@pytest.fixture
def scans(monkeypatch):
    """The files that are scanned, in a process that remembers none."""
    scanned = []
    monkeypatch.setattr(scan, "_recent", type(scan._recent)())
    monkeypatch.setattr(scan, "scan_file", lambda path: scanned.append(path) or scan_file(path))
    return scanned


def _forget():
    scan._recent.clear()


@pytest.mark.parametrize("name", _NAMES)
def test_a_kept_scan_is_the_scan(name, make_clip):
    scan = scan_file(make_clip(name))
    copy = scan_from_bytes(scan_bytes(scan))
    assert (copy.info, copy.time_base, copy.size, copy.orientation) == (
        scan.info, scan.time_base, scan.size, scan.orientation
    )  # fmt: skip
    assert (copy.notes, copy.index is None) == (scan.notes, scan.index is None)
    np.testing.assert_array_equal(copy.frame_ticks, scan.frame_ticks)
    if scan.index is not None:
        for field in ("frame_packet", "frame_ticks", "sync_packet", "sync_frame"):
            np.testing.assert_array_equal(getattr(copy.index, field), getattr(scan.index, field))
        for field, values in vars(scan.index.packets).items():
            np.testing.assert_array_equal(getattr(copy.index.packets, field), values)


def test_a_second_opening_reads_the_store_and_the_same_frames(tmp_path, scans):
    path, store = write_clip(tmp_path / "clip.mp4"), RelevanceStore(tmp_path / "store.sqlite")
    with open_video(path, kept=store) as video:
        first = video.read([7, 41])
    _forget()
    with open_video(path, kept=RelevanceStore(tmp_path / "store.sqlite")) as video:
        np.testing.assert_array_equal(video.read([7, 41]), first)
    assert scans == [path]
    with open_video(path) as video:
        assert video.info.n_frames == 60
    _forget()
    with open_video(path) as video:
        assert video.info.n_frames == 60
    assert scans == [path, path]


def test_another_file_in_its_place_is_scanned_again(tmp_path, scans):
    path, store = write_clip(tmp_path / "clip.mp4"), RelevanceStore(tmp_path / "store.sqlite")
    open_video(path, kept=store).close()
    write_clip(path, n_frames=30)
    with open_video(path, kept=store) as video:
        assert video.info.n_frames == 30
    os.utime(path, ns=(5, 5))
    _forget()
    open_video(path, kept=store).close()
    assert len(scans) == 3


def test_no_changed_byte_of_a_kept_scan_is_believed(tmp_path):
    scan = scan_file(write_clip(tmp_path / "clip.mp4"))
    content = scan_bytes(scan)
    for place in range(len(content)):
        copy = scan_from_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        if copy is not None:  # a byte that the format does not use
            assert copy.info == scan.info
            np.testing.assert_array_equal(copy.index.frame_packet, scan.index.frame_packet)
            np.testing.assert_array_equal(copy.index.packets.sizes, scan.index.packets.sizes)


def test_what_another_version_kept_is_not_believed(tmp_path, monkeypatch):
    content = scan_bytes(scan_file(write_clip(tmp_path / "clip.mp4")))
    assert scan_from_bytes(content) is not None
    monkeypatch.setattr(scan, "FORMAT", 0)
    assert scan_from_bytes(content) is None


def test_a_query_of_which_all_is_known_opens_no_decoder(tmp_path, scans, monkeypatch):
    path, store = write_clip(tmp_path / "clip.mp4"), RelevanceStore(tmp_path / "store.sqlite")
    open_video(path, kept=store).close()
    _forget()
    monkeypatch.setattr("focus_eval.keyframes.video.pyav.Decoder", None)
    with open_video(path, kept=store) as video:
        assert video.frame_times([30])[0] == pytest.approx(1.0)
        assert video.n_decoded == 0
