"""Are the clips that tests and benchmarks write what they say?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.clip_writer import ClipWriter
from focus_eval.keyframes.video.scan import Orientation
from tests.support.keyframes.synthetic import (
    frame_number,
    moving_texture,
    numbered_frame,
    write_long_clip,
    write_numbered_clip,
)


@given(st.integers(0, 2**20 - 1), st.integers(24, 200), st.integers(16, 200))
def test_a_number_drawn_is_read_back(number, width, height):
    assert frame_number(numbered_frame(number, width=width, height=height)) == number


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_plain_picture_carries_no_number(level):
    with pytest.raises(InvalidInput, match="no readable number"):
        frame_number(np.full((64, 96, 3), level, dtype=np.uint8))


@given(st.integers(0, 2**20 - 1), st.integers(0, 23))
def test_a_misread_cell_is_noticed(number, cell):
    pixels = numbered_frame(number, width=96, height=64)
    row, column = divmod(cell, 6)
    block = pixels[row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
    block[:] = 255 - block
    with pytest.raises(InvalidInput, match="no readable number"):
        frame_number(pixels)


def test_a_number_that_does_not_fit_is_refused():
    with pytest.raises(InvalidInput, match="frame number"):
        numbered_frame(2**20, width=96, height=64)


def test_the_same_frames_give_the_same_file(tmp_path):
    first, second = (write_numbered_clip(tmp_path / name, 40, gop=10) for name in ("a.mp4", "b.mp4"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_narrow_pictures_give_the_same_bytes_every_time(tmp_path):
    """Where x264's macroblock tree gives other bytes now and then, on a processor with AVX-512."""
    frames, contents = list(moving_texture(31, width=64, height=36)), set()
    for _ in range(200):
        with ClipWriter(tmp_path / "clip.mp4", width=64, height=36, options={"bf": "0"}) as writer:
            for pixels in frames:
                writer.write(pixels)
        contents.add((tmp_path / "clip.mp4").read_bytes())
    assert len(contents) == 1


def test_a_frame_of_another_size_is_refused(tmp_path):
    with ClipWriter(tmp_path / "a.mp4", width=96, height=64) as writer:
        with pytest.raises(InvalidInput, match="64 x 96 x 3 expected"):
            writer.write(np.zeros((10, 10, 3), dtype=np.uint8))
        writer.write(np.zeros((64, 96, 3), dtype=np.uint8))
    assert open_video(tmp_path / "a.mp4").info.n_frames == 1


def test_an_unknown_codec_is_refused(tmp_path):
    with pytest.raises(VideoError, match=r"a.mp4: cannot write nothing"):
        ClipWriter(tmp_path / "a.mp4", width=96, height=64, codec="nothing")


def test_a_long_clip_repeats_whole_segments(tmp_path):
    path = write_long_clip(tmp_path / "long.mp4", 10, width=64, height=48, segment_seconds=2, gop=25)
    with open_video(path) as video:
        assert video.info.n_frames == 300
        assert video.info.fps == 30
        assert set(range(0, 300, 60)) <= set(video.info.sync_frames.tolist())
        first, second = video.read([7, 67])
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(video.frame_times([299]), 299 / 30, atol=1e-4)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["long.mp4"]


def test_texture_moves():
    frames = list(moving_texture(3, width=32, height=16))
    assert all(frame.shape == (16, 32, 3) for frame in frames)
    assert not np.array_equal(frames[0], frames[1])


@pytest.mark.parametrize(("matrix", "turned"), [
    ((1, 0, 0, 1), lambda a: a),
    ((0, 1, -1, 0), lambda a: np.rot90(a, -1)),
    ((-1, 0, 0, -1), lambda a: np.rot90(a, 2)),
    ((0, -1, 1, 0), lambda a: np.rot90(a, 1)),
    ((-1, 0, 0, 1), lambda a: a[:, ::-1]),
    ((1, 0, 0, -1), lambda a: a[::-1]),
    ((0, 1, 1, 0), lambda a: a.transpose(1, 0, 2)),
])  # fmt: skip
def test_a_display_matrix_turns_or_mirrors(matrix, turned):
    a, b, c, d = matrix
    words = np.array([a, b, 0, c, d, 0, 0, 0, 1 << 14], dtype=np.int32) << 16
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    orientation = Orientation.of_matrix(words.tobytes())
    np.testing.assert_array_equal(orientation.apply(pixels), turned(pixels))
    assert orientation.size(3, 2) == turned(pixels).shape[1::-1]
