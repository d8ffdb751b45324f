"""Compare the RGB of frames with swscale's own answer and with the standards' formula; print a table.

Prints the largest difference of each format and range.

Makes lossless clips (FFV1 in Matroska) of each pixel format, range and matrix. Of noise, each value is compared with
what the `ffmpeg` command line gives, with its default scaling and with the reader's (bilinear); of flat patches, with
the formula of ITU-R BT.601, 709 and 2020. Then the eight orientations, against the command line's own turning.
Run: python -m scripts.checks.colours [--csv results/published/colours.csv]
"""

from __future__ import annotations

import argparse
import csv
import itertools
import subprocess
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.keyframes.video import open_video
from tests.support.keyframes.clips import write_clip
from tests.support.keyframes.damage import set_display_matrix

WIDTH, HEIGHT, PATCH = 128, 96, 16
FORMATS = {
    "yuv420p": "8 bits, 4:2:0", "yuv422p": "8 bits, 4:2:2", "yuv444p": "8 bits, 4:4:4", "gray": "8 bits, gray",
    "yuva420p": "8 bits, 4:2:0, alpha", "yuv420p10le": "10 bits, 4:2:0", "yuv422p10le": "10 bits, 4:2:2",
    "yuv444p10le": "10 bits, 4:4:4", "gray10le": "10 bits, gray", "yuva444p10le": "10 bits, 4:4:4, alpha",
    "yuv420p12le": "12 bits, 4:2:0",
}  # fmt: skip
RANGES = {"limited": 1, "full": 2}
# Name: FFmpeg's number of the matrix (ITU-T H.273) and the shares of red and blue in luma.
MATRICES = {"BT.601": (6, 0.299, 0.114), "BT.709": (1, 0.2126, 0.0722), "BT.2020": (9, 0.2627, 0.0593)}
ORIENTATIONS = [(a, 0, 0, d) for a, d in itertools.product((1, -1), repeat=2)]
ORIENTATIONS += [(0, b, c, 0) for b, c in itertools.product((1, -1), repeat=2)]


@dataclass(frozen=True)
class Coding:
    """How the values of a clip are coded: pixel format, range and matrix, by the names above."""

    format: str
    range: str
    matrix: str

    @property
    def bits(self) -> int:
        """Bits of a value."""
        return av.VideoFormat(self.format).components[0].bits

    @property
    def bounds(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(black, white) of luma and (middle, half the span) of chroma."""
        scale, top = 1 << (self.bits - 8), (1 << self.bits) - 1
        if self.range == "full":
            return (0, top), (128 * scale, top / 2)
        return (16 * scale, 235 * scale), (128 * scale, 112 * scale)


def planes(coding: Coding, rng: np.random.Generator, *, is_flat: bool) -> list[NDArray[np.integer[Any]]]:
    """Return one picture's planes with random legal values, in patches of one colour if `is_flat`; alpha is random."""
    video_format = av.VideoFormat(coding.format, WIDTH, HEIGHT)
    (black, white), (middle, half) = coding.bounds
    pixels = []
    for number, component in enumerate(video_format.components):
        low, high = (middle - half, middle + half) if number in (1, 2) and component.is_chroma else (black, white)
        patch = PATCH * component.width // WIDTH if is_flat else 1
        shape = component.height // patch, component.width // patch
        values = rng.integers(int(np.ceil(low)), int(high) + 1, shape)
        pixels.append(np.kron(values, np.ones((patch, patch), dtype=np.int64)))
    return pixels


def write_planes(path: Path, coding: Coding, pictures: list[list[NDArray[np.integer[Any]]]]) -> None:
    """Write pictures losslessly, with range and matrix stated in the file."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, coding.format
        stream.codec_context.color_range = RANGES[coding.range]
        stream.codec_context.colorspace = MATRICES[coding.matrix][0]
        for number, picture in enumerate(pictures):
            frame: Any = av.VideoFrame(WIDTH, HEIGHT, coding.format)
            frame.color_range, frame.colorspace = RANGES[coding.range], MATRICES[coding.matrix][0]
            frame.pts, frame.time_base = number, Fraction(1, 25)
            kind = np.uint8 if coding.bits == 8 else np.dtype("<u2")
            for plane, values in zip(frame.planes, picture, strict=True):
                rows = np.zeros((plane.height, plane.line_size // np.dtype(kind).itemsize), dtype=kind)
                rows[:, : values.shape[1]] = values
                plane.update(rows.tobytes())
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def formula(coding: Coding, picture: list[NDArray[np.integer[Any]]]) -> NDArray[np.float64]:
    """Return R'G'B' in 0 to 255 of a picture's values (ITU-R BT.601, 709, 2020), chroma repeated; alpha is ignored."""
    (black, white), (middle, half) = coding.bounds
    luma = (picture[0] - black) / (white - black)
    if coding.format.startswith("gray"):
        return np.repeat(255 * luma[:, :, None], 3, axis=2)
    blue, red = (
        np.kron((plane - middle) / (2 * half), np.ones((HEIGHT // plane.shape[0], WIDTH // plane.shape[1])))
        for plane in picture[1:3]
    )
    _, of_red, of_blue = MATRICES[coding.matrix]
    r, b = luma + 2 * (1 - of_red) * red, luma + 2 * (1 - of_blue) * blue
    g = (luma - of_red * r - of_blue * b) / (1 - of_red - of_blue)
    return 255 * np.stack([r, g, b], axis=2).clip(0, 1)


def read(path: Path) -> NDArray[np.int64]:
    """Return the frames as the package reads them."""
    with open_video(path) as video:
        return video.read(np.arange(video.info.n_frames)).astype(np.int64)


def shown_by_ffmpeg(path: Path, shape: tuple[int, ...], *, flags: str | None = None) -> NDArray[np.int64]:
    """Return the frames that the `ffmpeg` command line writes as RGB, in this shape."""
    options = ["-sws_flags", flags] if flags else []
    command = ["ffmpeg", "-v", "error", "-i", str(path), *options, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape).astype(np.int64)


def colour_row(folder: Path, coding: Coding) -> dict[str, str]:
    """Return the row of one coding: largest differences in levels of 255."""
    rng, path = np.random.default_rng(0), folder / "clip.mkv"
    noise, flat = ([planes(coding, rng, is_flat=is_flat) for _ in range(3)] for is_flat in (False, True))
    write_planes(path, coding, noise)
    pixels = read(path)
    row = {"format": FORMATS[coding.format], "range": coding.range, "matrix": coding.matrix}
    for name, flags in (("ffmpeg", None), ("ffmpeg, bilinear", "bilinear")):
        row[name] = str(np.abs(pixels - shown_by_ffmpeg(path, pixels.shape, flags=flags)).max())
    write_planes(path, coding, flat)
    # Inside of patches, where no colour of a neighbour is mixed in.
    inside = np.zeros(PATCH, dtype=bool)
    inside[PATCH // 4 : -PATCH // 4] = True
    mask = np.tile(inside, HEIGHT // PATCH)[:, None] & np.tile(inside, WIDTH // PATCH)[None]
    expected = np.stack([formula(coding, picture) for picture in flat])
    row["formula"] = f"{np.abs(read(path) - expected)[:, mask].max():.1f}"
    return row


def orientation_rows(folder: Path) -> list[dict[str, str]]:
    """Return a row for each orientation of an MP4's display matrix: the largest difference to `ffmpeg`'s pictures."""
    upright = write_clip(folder / "upright.mp4", n_frames=10)
    rows = []
    for matrix in ORIENTATIONS:
        pixels = read(set_display_matrix(upright, folder / "turned.mp4", matrix=matrix))
        shown = shown_by_ffmpeg(folder / "turned.mp4", pixels.shape, flags="bilinear")
        difference = str(np.abs(pixels - shown).max())
        rows.append({"format": f"display matrix {matrix}", "range": "", "matrix": "", "ffmpeg, bilinear": difference})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="write the table here too")
    options = parser.parse_args()
    columns = ["format", "range", "matrix", "ffmpeg", "ffmpeg, bilinear", "formula"]
    with tempfile.TemporaryDirectory() as temporary:
        rows = [colour_row(Path(temporary), Coding(*names)) for names in itertools.product(FORMATS, RANGES, MATRICES)]
        rows += orientation_rows(Path(temporary))
    largest: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        cells = largest.setdefault((row["format"], row["range"]), {})
        for name in columns[3:]:
            cells[name] = max(cells.get(name, 0), float(row.get(name, 0)))
    print("| format | range | " + " | ".join(columns[3:]) + " |\n|" + "---|" * (len(columns) - 1))
    for (name, value_range), cells in largest.items():
        print(f"| {name} | {value_range} | " + " | ".join(f"{cells[column]:g}" for column in columns[3:]) + " |")
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
