"""Turns decoded frames into RGB: as the file stores them, or as a screen shows them.

A screen maps HDR (PQ or HLG) to its own range of light, and stretches pixels that are not square. HDR becomes standard
dynamic range in five steps:

1. Coded values to light: the EOTF of PQ, or the inverse OETF of HLG and its OOTF for a screen of 1000 cd/m2
   (Recommendation ITU-R BT.2100-2, tables 4 and 5). PQ light above 1000 cd/m2 is clipped.
2. Primaries of BT.2020 to those of BT.709 (Report ITU-R BT.2407-0, 2, linear matrix); colours outside it are clipped.
3. Light up to 1000 cd/m2 to light up to 203 cd/m2, the level of white in HDR (Report ITU-R BT.2408-7, 2.1), by the EETF
   of Report ITU-R BT.2390-11, 5.4.1. It leaves light below 92 cd/m2 unchanged.
4. Step 3 is computed for the largest of the three channels, and all three are scaled by its factor: the hue stays.
5. Light to coded values: the inverse of Recommendation ITU-R BT.1886, gamma 2.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.types import FloatArray, Pixels

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.stream import VideoStream


WHITE, PEAK = 203.0, 1000.0  # cd/m2: white in HDR, and the brightest light that is mapped
VERSION = 1  # increase whenever "display" would give other pixels
TRANSFERS = {16: "PQ", 18: "HLG"}  # by ITU-T H.273, table 3
_BT709_PRIMARIES, _FULL_RANGE = 1, 2
_LEVELS = 1 << 16
_ROWS = 16  # rows mapped at a time: few enough to stay in a core's cache
# The matrix of Report ITU-R BT.2407-0 with more digits than it prints: a channel near 0 is a difference of large
# numbers, so rounding would show.
_BT2020_TO_BT709 = np.array(
    [[1.660491, -0.587641, -0.072850], [-0.124550, 1.132900, -0.008349], [-0.018151, -0.100579, 1.118730]],
    dtype=np.float32,
)
_BT2020_LUMINANCE = np.array([0.2627, 0.6780, 0.0593], dtype=np.float32)
_BT709_AS_IT_IS = np.eye(3, dtype=np.float32)


@dataclass(frozen=True)
class Appearance:
    """A file's statements on how to display its stored pixels.

    Args:
        transfer: "PQ" or "HLG" for HDR; "" for standard dynamic range.
        has_bt709_primaries: True for HDR with the primaries of BT.709; False: those of BT.2020 are assumed.
        pixel_aspect: width of a stored pixel divided by its height.
    """

    transfer: str = ""
    has_bt709_primaries: bool = False
    pixel_aspect: float = 1.0

    @classmethod
    def of_stream(cls, stream: VideoStream) -> Appearance:
        """Return the appearance that a stream states, known once a frame of the stream has been decoded."""
        context = stream.codec_context
        aspect = stream.sample_aspect_ratio or context.sample_aspect_ratio
        return cls(
            transfer=TRANSFERS.get(int(context.color_trc or 0), ""),
            has_bt709_primaries=context.color_primaries == _BT709_PRIMARIES,
            pixel_aspect=float(aspect) if aspect else 1.0,
        )

    @property
    def is_plain(self) -> bool:
        """True if a screen shows the pixels as they are stored."""
        return not self.transfer and self.pixel_aspect == 1.0

    @property
    def traits(self) -> tuple[str, ...]:
        """Conversions that a screen must apply to the stored pixels, in a few words each; () for none."""
        hdr = f"HDR ({self.transfer})" if self.transfer else ""
        stretched = f"pixels {self.pixel_aspect:.4g} times as wide as high" if self.pixel_aspect != 1.0 else ""
        return tuple(filter(None, [hdr, stretched]))

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence per trait: which commands use the displayed pixels, and which use the stored ones."""
        return tuple(
            f"{trait}: select, ask and pictures on disk show it as a screen does; models and encoders of a table see "
            "it as stored, unless the matrix has pixels: display or the plugin backend=pyav:pixels=display"
            for trait in self.traits
        )

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) in square pixels of a picture stored as `width` x `height`; no side gets smaller."""
        if self.pixel_aspect >= 1:
            return max(1, round(width * self.pixel_aspect)), height
        return width, max(1, round(height / self.pixel_aspect))


def rgb_pixels(frame: VideoFrame, stored_size: tuple[int, int], shown_as: Appearance | None = None) -> Pixels:
    """Return a decoded frame as RGB uint8 `(height, width, 3)`, converted by its own colour matrix and range.

    Args:
        frame: PyAV's decoded frame.
        stored_size: (width, height) to scale it to, before `shown_as` makes its pixels square.
        shown_as: how a screen shows it; None for the stored pixels.
    """
    is_hdr = shown_as is not None and bool(shown_as.transfer)
    width, height = shown_as.size(*stored_size) if shown_as else stored_size
    is_full = frame.color_range == _FULL_RANGE or frame.format.name.startswith("yuvj")
    # PyAV applies the source's matrix only if a target matrix is named, though RGB has none.
    pixels = frame.to_ndarray(
        format="rgb48le" if is_hdr else "rgb24",
        width=width,
        height=height,
        dst_colorspace="ITU601",
        src_color_range="JPEG" if is_full else "MPEG",
    )
    if shown_as is None or not is_hdr:
        return np.asarray(pixels, dtype=np.uint8)
    return sdr_pixels(
        pixels.astype(np.uint16, copy=False), shown_as.transfer, has_bt709_primaries=shown_as.has_bt709_primaries
    )


def sdr_pixels(coded: NDArray[np.uint16], transfer: str, *, has_bt709_primaries: bool = False) -> Pixels:
    """Return RGB of standard dynamic range, uint8, shape as `coded`.

    Args:
        coded: RGB `(height, width, 3)`, 65535 for the largest coded value.
        transfer: "PQ" or "HLG".
        has_bt709_primaries: True if the primaries are those of BT.709, False for BT.2020.
    """
    light_of_code, gain_of_light, code_of_root = _light_table(transfer), _gain_table(), _code_table()
    primaries = (_BT709_AS_IT_IS if has_bt709_primaries else _BT2020_TO_BT709).T
    mapped, top = np.empty(coded.shape, dtype=np.uint8), np.float32(_LEVELS - 1)
    for at in range(0, len(coded), _ROWS):
        light = np.take(light_of_code, coded[at : at + _ROWS].reshape(-1, 3), mode="clip")
        if transfer == "HLG":
            luminance = light @ _BT2020_LUMINANCE
            light *= np.take(_ootf_table(), _as_index(luminance * top), mode="clip")[:, None]
        light = light @ primaries
        np.maximum(light, 0, out=light)
        largest = np.maximum(np.maximum(light[:, 0], light[:, 1]), light[:, 2])
        light *= np.take(gain_of_light, _as_index(largest * top), mode="clip")[:, None]
        np.sqrt(light, out=light)
        np.take(code_of_root, _as_index(light * top), mode="clip", out=mapped[at : at + _ROWS].reshape(-1, 3))
    return mapped


def _as_index(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    index: NDArray[np.uint16] = (np.minimum(values, np.float32(_LEVELS - 1)) + np.float32(0.5)).astype(np.uint16)
    return index


# Tables of `_LEVELS` values over [0, 1]; light is a share of `PEAK` before step 4, of `WHITE` after it.


@cache
def _light_table(transfer: str) -> NDArray[np.float32]:
    code = np.linspace(0.0, 1.0, _LEVELS)
    light = np.minimum(pq_light(code) / PEAK, 1.0) if transfer == "PQ" else hlg_scene_light(code)
    return light.astype(np.float32)


@cache
def _ootf_table() -> NDArray[np.float32]:
    """The OOTF of HLG as a factor for each scene luminance, for a screen of 1000 cd/m2 (gamma 1.2)."""
    return np.power(np.linspace(0.0, 1.0, _LEVELS), 0.2).astype(np.float32)


@cache
def _gain_table() -> NDArray[np.float32]:
    light = np.linspace(0.0, 1.0, _LEVELS)
    light[0] = light[1]
    gain: NDArray[np.float32] = (compressed_light(light * PEAK) / WHITE / light).astype(np.float32)
    return gain


@cache
def _code_table() -> Pixels:
    """Coded values at equal steps of the square root of light; equal steps of light would be too coarse in the dark."""
    code: Pixels = np.rint(255 * np.power(np.linspace(0.0, 1.0, _LEVELS), 2 / 2.4)).astype(np.uint8)
    return code


def pq_light(code: FloatArray) -> FloatArray:
    """Return light in cd/m2, [0, 10000], of coded values in [0, 1]: the EOTF of PQ (BT.2100-2, table 4)."""
    power = np.power(code, 32 / 2523)
    light: FloatArray = 10000.0 * np.power(
        np.maximum(power - 3424 / 4096, 0.0) / (2413 / 128 - 2392 / 128 * power), 16384 / 2610
    )
    return light


def pq_code(light: FloatArray) -> FloatArray:
    """Return coded values in [0, 1] of light in cd/m2, [0, 10000]: the inverse of `pq_light`."""
    power = np.power(np.asarray(light) / 10000.0, 2610 / 16384)
    code: FloatArray = np.power((3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power), 2523 / 32)
    return code


def hlg_scene_light(code: FloatArray) -> FloatArray:
    """Return scene light in [0, 1] of coded values in [0, 1]: the inverse OETF of HLG (BT.2100-2, table 5)."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return np.where(code <= 0.5, code**2 / 3, (np.exp((code - c) / a) + b) / 12)


def compressed_light(light: FloatArray) -> FloatArray:
    """Return light in [0, `WHITE`] for light in [0, `PEAK`] cd/m2: the EETF of BT.2390-11, 5.4.1, with black at 0."""
    top = float(pq_code(np.array(PEAK)))
    largest, code = float(pq_code(np.array(WHITE))) / top, pq_code(light) / top
    knee = 1.5 * largest - 0.5
    t = np.clip((code - knee) / (1 - knee), 0.0, 1.0)
    spline = (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (-2 * t**3 + 3 * t**2) * largest
    return pq_light(np.where(code < knee, code, spline) * top)
