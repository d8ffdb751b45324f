"""Is a folder of pictures read as its camera and its bits say, and a broken one refused in one line?"""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video.pictures import PictureReader

_ORIENTATION = 0x0112


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
@pytest.mark.parametrize("orientation", range(10))
def test_a_picture_is_upright_however_the_camera_was_held(tmp_path, suffix, orientation):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[_ORIENTATION] = orientation
    Image.fromarray(pixels).save(path, exif=exif)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    np.testing.assert_array_equal(PictureReader(tmp_path, fps=1).read([0])[0], expected)


def test_what_the_camera_says_may_be_damaged(tmp_path):
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    Image.new("RGB", (30, 20)).save(tmp_path / "a.webp", exif=exif)
    content = (tmp_path / "a.webp").read_bytes()
    (tmp_path / "a.webp").write_bytes(content.replace(b"MM\0*", b"MMM*").replace(b"II*\0", b"III\0"))
    assert PictureReader(tmp_path, fps=1).read([0]).shape == (1, 20, 30, 3)


def test_grey_of_16_bits_keeps_its_upper_eight(tmp_path):
    grey = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    Image.fromarray(grey).save(tmp_path / "a.png")
    pixels = PictureReader(tmp_path, fps=1).read([0])[0]
    np.testing.assert_array_equal(pixels, np.repeat((grey >> 8).astype(np.uint8)[:, :, None], 3, axis=2))


def test_a_header_of_too_many_pixels_is_one_line(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "a.bmp")
    whole = (tmp_path / "a.bmp").read_bytes()
    size = np.array([65535, 65535], dtype="<i4").tobytes()
    (tmp_path / "a.bmp").write_bytes(whole[:18] + size + whole[26:])
    with pytest.raises(VideoError, match=r"not a readable picture \(.*\); remove or replace it"):
        PictureReader(tmp_path, fps=1)
