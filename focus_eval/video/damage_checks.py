"""Says how far damage in a video file would be noticed, without reading the file."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from focus_eval.core.errors import VideoError
from focus_eval.video.decoder import Decoder
from focus_eval.video.integrity import BY_CHECKSUM, Findings, kind_of_check, matroska_has_checksums
from focus_eval.video.manifest import is_named
from focus_eval.video.reader import checked_file

UNREADABLE = "cannot be opened"
MOST_FILES = 20


def how_checked(path: Path) -> str:
    """Return one of "checked by checksum", "checked by structure", "cannot be checked" and "cannot be opened".

    A manifest has a checksum of the whole file. Else the codec says it, and in Matroska the first cluster, which has a
    checksum where the writer left them.
    """
    if is_named(path):
        return BY_CHECKSUM
    try:
        decoder = Decoder(checked_file(path), n_threads=1)
    except VideoError:
        return UNREADABLE
    try:
        findings = Findings()
        if "matroska" in decoder.container.format.name:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                findings.has_checksums = matroska_has_checksums(data)
        return kind_of_check(decoder.stream.codec_context.name, findings)
    finally:
        decoder.close()


def count_checked(paths: Sequence[Path]) -> str:
    """Return how many of some files, spread over all, are checked and how: "20 of 900 videos: 20 checked by checksum".

    Every file that a manifest names is counted, as that costs nothing.
    """
    left = [path for path in paths if not is_named(path)]
    looked_at = left[:: max(1, -(-len(left) // MOST_FILES))]
    counts = Counter({BY_CHECKSUM: len(paths) - len(left)}) + Counter(how_checked(path) for path in looked_at)
    n = len(paths) - len(left) + len(looked_at)
    what = ", ".join(f"{number} {kind}" for kind, number in counts.most_common())
    return f"{f'{n} of ' if n < len(paths) else ''}{len(paths)} video{'s' if len(paths) > 1 else ''}: {what}"
