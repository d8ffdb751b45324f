"""Reads subtitles with their times from SubRip, WebVTT and JSON files.

lines = read_subtitles(Path("talk.srt"))
lines[0].start_seconds, lines[0].text
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path

from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import open_unpacked, whole_texts
from focus_eval.core.types import TimedText

# Limit on the size of a subtitle file: that of a ten-hour video has two megabytes, so a larger file is no such file.
MAX_BYTES = 50_000_000
# UTF-32 must be tried before UTF-16, because its byte order mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Line with the times of a cue: it begins with a digit and has an arrow.
_CUE_TIMES = re.compile(r"^[^\S\n]*\d.*-->", re.MULTILINE)
_READABLE_CUE_TIMES = re.compile(r"\s*(?:\d+:)?\d{1,2}:\d{1,2}[,.]\d+\s*-->\s*(?:\d+:)?\d{1,2}:\d{1,2}[,.]\d+")
# Files of Video-MME have each line in such tags; the benchmark itself uses only the text in the first pair of tags.
_FONT_TEXT = re.compile(r"<font[^>]*>(.*?)</font>")
# Subtitle editors write positions and styles as in "{\an8}".
_STYLE_MARK = re.compile(r"\{\\[^}]*\}")


def read_subtitles(
    path: Path, *, offset_seconds: float = 0.0, open_end_seconds: float | None = None, encoding: str = ""
) -> tuple[TimedText, ...]:
    """Return the lines of a subtitle file in the file's order; () for a file without a line.

    The content decides the format: JSON (see below), WebVTT or SubRip (.srt). Tags are removed, line breaks become
    spaces.

    A JSON file is a list. Its entries have `timestamp` (two numbers, the second may be null) and `text`, or `start` and
    `end` (h:mm:ss.ms) and `line`, as in LongVideoBench.

    Args:
        offset_seconds: time on the file's clock at which the video begins; subtracted from all times.
        open_end_seconds: time on the file's clock at which a line without an end stops; None for the start of the
            following line.
        encoding: encoding of the file, e.g. "cp1252", if it is not UTF-8 and has no byte order mark. It is never
            guessed, because guesses mistake French for Czech.

    Raises:
        InvalidInput: no such file, or no subtitles; names the file and the first line that cannot be read.
    """
    try:
        state = path.stat()
        return _read(path, (state.st_mtime_ns, state.st_size), offset_seconds, open_end_seconds, encoding)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"{path}: subtitles cannot be read ({reason}); fetch them, or go without them") from error


def in_order_of_time(lines: tuple[TimedText, ...]) -> tuple[TimedText, ...]:
    """Return the lines ascending by start; lines with equal starts keep their order."""
    return tuple(sorted(lines, key=lambda line: line.start_seconds))


# Cached, since several questions ask about one video.
@lru_cache(maxsize=64)
def _read(
    path: Path, state: tuple[int, int], offset_seconds: float, open_end_seconds: float | None, encoding: str
) -> tuple[TimedText, ...]:
    """The lines of a file, as in `read_subtitles`; a changed file has another `state`. Raises OSError, ValueError."""
    text = _decoded(_bytes_of(path), encoding)
    if not text.strip():
        return ()
    spans = list(_json_spans(text) if text.lstrip()[0] in "[{" else _cue_spans(text))
    lines = []
    for at, (start, stop, words) in enumerate(spans):
        if stop is None and open_end_seconds is None:
            stop = max(start, spans[at + 1][0] if at + 1 < len(spans) else start)
        elif stop is None:
            stop = open_end_seconds
        assert stop is not None
        lines.append(TimedText(start - offset_seconds, stop - offset_seconds, words))
    return tuple(lines)


def _bytes_of(path: Path) -> bytes:
    with open_unpacked(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES // 10**6} MB")
    return content


def _decoded(content: bytes, encoding: str) -> str:
    """The text of a file. Raises ValueError if the bytes are not text in this encoding."""
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), encoding)
    if not encoding and b"\0" in content:
        raise ValueError("no text: it holds zero bytes; of UTF-16 name the encoding")
    encoding = encoding or "utf-8"
    try:
        return content.decode(encoding)
    except LookupError:
        raise ValueError(f"no encoding is called {encoding!r}, try cp1252 or gb18030") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line}, byte {error.start} is not {encoding}: name the file's encoding or save it as UTF-8"
        ) from None


def _cue_spans(text: str) -> Iterator[tuple[float, float | None, str]]:
    """Yield (start, stop, text) of the cues of a WebVTT or SubRip text, in seconds. Raises ValueError for another."""
    from webvtt import WebVTT
    from webvtt.errors import MalformedCaptionError, MalformedFileError
    from webvtt.models import Timestamp

    text = text.lstrip()
    is_webvtt = text.startswith("WEBVTT")
    # Refuse cues with unreadable times here, because webvtt-py drops them silently.
    for match in _CUE_TIMES.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        if not _READABLE_CUE_TIMES.match(text, match.start()):
            line = text[match.start() :].lstrip().partition("\n")[0]
            raise ValueError(f"line {number} is no range of times: {line[:60]!r}")
    try:
        cues = WebVTT.from_buffer([text], format="vtt" if is_webvtt else "srt").captions
    except MalformedFileError as error:
        raise ValueError("neither SubRip, WebVTT nor JSON") from error
    except MalformedCaptionError as error:
        raise ValueError(str(error)) from error
    for cue in cues:
        raw_text, plain_text = (" ".join(part.split("\n")) for part in (cue.raw_text, cue.text))
        font_text = None if is_webvtt else _FONT_TEXT.search(raw_text)
        words = _STYLE_MARK.sub("", plain_text if font_text is None else font_text[1]).strip()
        start, stop = map(Timestamp.from_string, (cue.start, cue.end))
        # Add seconds and milliseconds as lmms-eval does, because the last bit may decide at which frame a line begins.
        span = start.in_seconds() + start.milliseconds / 1000, stop.in_seconds() + stop.milliseconds / 1000
        yield *span, html.unescape(words) if is_webvtt else words


def _json_spans(text: str) -> Iterator[tuple[float, float | None, str]]:
    """Yield (start, stop, text) of each entry, in seconds; stop is None if open. Raises ValueError for another file."""
    entries = whole_texts(json.loads(text))
    if not isinstance(entries, list):
        raise ValueError("not a list of lines")
    for at, entry in enumerate(entries):
        try:
            if isinstance(entry, Mapping) and "timestamp" in entry:
                start, stop = entry["timestamp"]
                span = float(start), None if stop is None else float(stop), str(entry["text"])
            else:
                span = _seconds(entry["start"]), _seconds(entry["end"]), str(entry["line"])
            if not all(isfinite(seconds) for seconds in span[:2] if seconds is not None):
                raise ValueError("a time is not finite")
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"entry {at} is not a line with its times: {str(entry)[:80]}") from error
        yield span


def _seconds(clock: str) -> float:
    """The seconds of a clock time, "01:02:03.5" gives 3723.5."""
    *units, seconds = clock.split(":")
    whole = 0
    for unit in units:
        whole = 60 * (whole + int(unit))
    return whole + float(seconds)
