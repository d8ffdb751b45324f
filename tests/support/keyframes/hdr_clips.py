"""Writes a photograph as SDR, PQ and HLG clips, by the formulas of BT.2100 written down a second time."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.core.types import Pixels

WHITE = 203.0  # cd/m2, of SDR white within HDR (BT.2408)
_TRANSFERS = {"SDR": 1, "PQ": 16, "HLG": 18}
_PRIMARIES = {"SDR": 1, "PQ": 9, "HLG": 9}
_LUMA = {"SDR": (0.2126, 0.0722), "PQ": (0.2627, 0.0593), "HLG": (0.2627, 0.0593)}
_MATRIX = {"SDR": 1, "PQ": 9, "HLG": 9}


# Of the primaries of BT.709 in those of BT.2020 (Recommendation ITU-R BT.2087-0, M2).
_BT709_TO_BT2020 = np.array([[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]])


def coded_photograph(picture: Pixels, transfer: str) -> NDArray[np.float64]:
    """Return RGB in [0, 1], coded for `transfer`, of an SDR picture whose white is `WHITE`."""
    if transfer == "SDR":
        return picture / 255
    light: NDArray[np.float64] = WHITE * (picture / 255.0) ** 2.4 @ _BT709_TO_BT2020.T
    if transfer == "PQ":
        power = (light / 10000) ** 0.1593017578125
        return np.asarray(((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375)
    # The OOTF of a screen of 1000 cd/m2 undone, then the OETF of HLG.
    luminance = np.maximum(light @ np.array([0.2627, 0.6780, 0.0593]) / 1000, 1e-9)
    scene = light / 1000 * luminance[..., None] ** (1 / 1.2 - 1)
    logarithm = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
    return np.where(scene <= 1 / 12, np.sqrt(3 * scene), logarithm)


def write_photograph(
    path: Path, picture: Pixels, transfer: str, *, n_frames: int = 12, pixel_aspect: Fraction = Fraction(1)
) -> Path:
    """Write `n_frames` of the picture in 10 bits, lossless and without loss of chroma; return the path."""
    coded = coded_photograph(picture, transfer)
    red, blue = _LUMA[transfer]
    luma = coded @ np.array([red, 1 - red - blue, blue])
    planes = [
        64 + 876 * luma,
        512 + 896 * (coded[..., 2] - luma) / (2 * (1 - blue)),
        512 + 896 * (coded[..., 0] - luma) / (2 * (1 - red)),
    ]
    height, width = picture.shape[:2]
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream("libx264", rate=12, options={"qp": "0", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv444p10le"
        context = stream.codec_context
        context.color_range, context.colorspace = 1, _MATRIX[transfer]
        context.color_primaries, context.color_trc = _PRIMARIES[transfer], _TRANSFERS[transfer]
        context.sample_aspect_ratio = pixel_aspect
        for number in range(n_frames):
            frame = av.VideoFrame(width, height, "yuv444p10le")
            for plane, values in zip(frame.planes, planes, strict=True):
                padded = np.zeros((height, plane.line_size // 2), dtype="<u2")
                padded[:, :width] = np.rint(values)
                plane.update(padded.tobytes())
            frame.pts = number
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path
