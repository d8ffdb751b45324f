"""`VideoSelection`: the keyframes of one video for one query, with pictures, files and replies of models."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from focus_eval.core.errors import AnswerError, DamagedFrame, InvalidInput, SelectionMismatch
from focus_eval.core.files import replace_file
from focus_eval.core.resources import whole_text
from focus_eval.core.types import Pixels, Question, Selection, TimedText, checked_query, frozen_ints, whole_number
from focus_eval.keyframes.export import (
    MAX_SHOWN,
    ChatMessage,
    chat_message,
    check_shown,
    checked_sheet,
    sheet_html,
    write_pictures,
)
from focus_eval.keyframes.llms.registry import AnswersFromEvidence, make_llm
from focus_eval.keyframes.rows.identity import versions
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.subtitles.files import read_subtitles
from focus_eval.keyframes.subtitles.prompts import block_text, shown_lines
from focus_eval.keyframes.video.reader import VideoReader

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from focus_eval.keyframes.llms.registry import Model, Reply

NO_QUERY = "(no query)"
MAX_QUERY_CHARACTERS = 100_000


class Keyframe(NamedTuple):
    """One keyframe: index, presentation time in seconds, and relevance (NaN without scored frames)."""

    frame: int
    seconds: float
    relevance: float


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class VideoSelection(Selection):
    """The keyframes of one video for one query: a `Selection` that can open its video, and a sequence of `Keyframe`.

    >>> selection = select_keyframes("talk.mp4", query="a slide", k=4, sampler="uniform")
    >>> [f"{keyframe.frame} at {keyframe.seconds:.1f} s" for keyframe in selection]
    ['0 at 0.0 s', '26 at 2.6 s', '52 at 5.2 s', '79 at 7.9 s']

    Args:
        row: the record of the selection, as a run would write it.
        sampler_version: version of the sampler's code.
        reopen: opens the video again to read its pictures.
        warning: why the keyframes may not show what the query asks for; "" if there is no doubt. Reasons: the encoder
            may not know what the query names, or could not read the query to its end; nothing in the video stands out;
            keyframes look alike; damaged frames were left out.
        subtitles: lines of the video, see `with_subtitles`; () if none were given.
    """

    row: SelectionRow
    sampler_version: int
    reopen: Callable[[], VideoReader]
    warning: str = ""
    subtitles: tuple[TimedText, ...] = ()

    def __len__(self) -> int:
        """Number of keyframes, repeats counted."""
        return len(self.keyframes)

    def __iter__(self) -> Iterator[Keyframe]:
        """Yield a `Keyframe` for each keyframe, in order of time."""
        yield from map(Keyframe, self.keyframes, self.times, self.relevance.tolist())

    def __getitem__(self, at: int) -> Keyframe:
        """Return keyframe number `at`, from 0."""
        return list[Keyframe](self)[at]

    @property
    def path(self) -> Path:
        """The video file or folder; `Path("array")` for an array."""
        return Path(self.row.video)

    @property
    def query(self) -> str:
        """The query that the frames were chosen for."""
        return self.row.query

    @property
    def times(self) -> tuple[float, ...]:
        """Presentation time of each keyframe by the file's own clock, in seconds since the first frame."""
        return tuple(self.row.times_seconds or ())

    def with_subtitles(self, path: str | Path, *, encoding: str = "") -> VideoSelection:
        """Return the selection with the subtitles of its video, which `ask` then gives the model.

        A line without an end lasts until the end of the video.

        Args:
            path: a .srt, .vtt or .json file (see `read_subtitles`).
            encoding: the file's encoding, needed if it is not UTF-8 and the file has no byte order mark.

        Raises:
            InvalidInput: no such file, or no subtitles.
        """
        lines = read_subtitles(Path(path), open_end_seconds=self.video.duration_seconds, encoding=encoding)
        return replace(self, subtitles=lines)

    @property
    def keyframe_lines(self) -> tuple[tuple[TimedText, ...], ...]:
        """For each keyframe the subtitles in whose interval [start, stop) it lies; all () without subtitles."""
        return tuple(
            shown_lines(self.subtitles, [seconds], rule="videomme", fps=self.video.fps) for seconds in self.times
        )

    def images(self) -> Iterator[Image]:
        """Yield the keyframes as PIL images at full size, in order, decoding the video as they are requested.

        Raises:
            VideoError: the file has gone, has changed, or is damaged.
        """
        from PIL import Image

        with naming_skip_damaged(), self.reopen() as reader:
            for frame, pixels in reader.stream(frozen_ints(self.keyframes)):
                for _ in range(self.keyframes.count(frame)):
                    yield Image.fromarray(pixels)

    def save_sheet(self, path: str | Path) -> Path:
        """Write a contact sheet to a .png, .pdf or .svg file: keyframes above the relevance of all scored frames."""
        file = checked_sheet(path)
        from focus_eval.keyframes.figures import write_figure

        with replace_file(file) as part:
            write_figure(self.sheet, part, dpi=150, kind=file.suffix.lower().lstrip(".") or "png")
        return file

    def save_frames(self, folder: str | Path, *, suffix: str = ".jpg") -> list[Path]:
        """Write the keyframes at full size as pictures; names and EXIF have time and frame. Return the paths.

        Args:
            folder: made if needed. Either all pictures are written or none.
            suffix: .jpg (quality 95) or .png.
        """
        pictures = ((frame, seconds, image) for (frame, seconds, _), image in zip(self, self.images(), strict=True))
        return write_pictures(folder, pictures, video=self.path, query=self.query, suffix=suffix)

    def messages(self, client: Literal["openai", "transformers"], question: str = "") -> list[ChatMessage]:
        """Return one chat message for a model: each keyframe after its time, then the question (default: the query).

        Args:
            client: "openai" has JPEGs as data URLs, for `chat.completions.create(messages=...)`; "transformers" has PIL
                images, for `processor.apply_chat_template`.
        """
        return [chat_message(client, self.times, self.images(), text=question or self.query)]

    def ask(self, llm: str | Model, question: str = "", *, max_tokens: int = 512) -> Reply:
        """Return a model's reply to the keyframes, in order with their times, and the question (default: the query).

        If the selection has subtitles, those of the keyframes are put before the question.

        Args:
            llm: a model object, or its name and options: "chat:model=gpt-4o-mini", "local:checkpoint=FOLDER".
            max_tokens: limit on the length of the answer in tokens.

        Raises:
            FocusEvalError: the model cannot be used, or gave no answer.
        """
        text = query_question(self.path, question or self.query).query
        model = llm
        if isinstance(model, str):
            model = make_llm(model)
            model.check()
        if isinstance(model, AnswersFromEvidence) or not hasattr(model, "ask"):
            raise InvalidInput(f"llm must name a model that sees pictures (chat, local) or be one, got {llm!r}")
        times = ", ".join(f"{seconds:.1f} s" for seconds in self.times)
        lines = shown_lines(self.subtitles, self.times, rule="videomme", fps=self.video.fps)
        block = block_text(lines) if lines else ""
        prompt = f"The pictures are frames of one video, in this order: {times}.\n{block}{text}"
        pictures = [np.asarray(image) for image in self.images()]
        reply = model.ask(prompt, pictures, max_tokens=whole_number(max_tokens, "max_tokens"))
        if not reply.text.strip():
            raise AnswerError(f"{model.model_id}: an answer without words; allow more than {max_tokens} tokens")
        return reply

    def to_json(self) -> str:
        """Return the row, the share of frames scored and the versions of all packages involved, as JSON."""
        return whole_text(json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)) + "\n"

    def as_dict(self) -> dict[str, object]:
        """Return the values of `to_json` as a dict."""
        keyframe_lines = [[line.text for line in lines] for lines in self.keyframe_lines]
        return {
            **asdict(self.row),
            **({"subtitles": keyframe_lines} if self.subtitles else {}),
            "frames_scored": self.share_scored,
            "sampler_version": self.sampler_version,
            "warning": self.warning or None,
            "versions": versions(),
        }

    @cached_property
    def thumbnails(self) -> dict[int, Pixels]:
        """The keyframes at most 320 pixels wide and high, by frame."""
        pictures = {}
        for frame, image in zip(self.keyframes, self.images(), strict=True):
            image.thumbnail((320, 320))
            pictures[frame] = np.asarray(image)
        return pictures

    @property
    def sheet(self) -> Figure:
        """The contact sheet as a matplotlib figure.

        Raises:
            InvalidInput: more than `MAX_SHOWN` keyframes.
        """
        check_shown(len(self.keyframes))
        from focus_eval.keyframes.figures import draw_sheet

        return draw_sheet(self.row, list(self.thumbnails.values()), warning=self.warning)

    def __repr__(self) -> str:
        """Return video, number of keyframes, query, sampler and cost on one line."""
        scored = f"{self.n_pulls} of {self.video.n_frames} frames scored"
        keyframes = "1 keyframe" if len(self) == 1 else f"{len(self)} keyframes"
        return f"<{self.path.name}: {keyframes} for {self.query!r}, {self.sampler}, {scored}>"

    def _repr_html_(self) -> str:
        """The contact sheet for a notebook, or the text of `repr` if there are too many keyframes for a sheet."""
        if len(self.keyframes) > MAX_SHOWN:
            return f"<code>{html.escape(repr(self))}</code>"
        return sheet_html(self.sheet)


@contextmanager
def naming_skip_damaged() -> Iterator[None]:
    """Mention the option `skip_damaged` in the message if a frame cannot be decoded in the block."""
    try:
        yield
    except DamagedFrame as error:
        raise DamagedFrame(f"{error}, or skip what is damaged: --skip-damaged, skip_damaged=True in Python") from error


def query_question(path: str | Path, query: str) -> Question:
    """Return the question, outside any benchmark, of one query on one file; raise InvalidInput for a bad query."""
    if not isinstance(query, str):
        raise InvalidInput(f"a query is text, got {query!r}")
    query = checked_query(query)
    if len(query) > MAX_QUERY_CHARACTERS:
        raise InvalidInput(f"the query has {len(query)} characters; at most {MAX_QUERY_CHARACTERS} are taken")
    return Question(benchmark="video", id=query, query=query, options=(), video=str(path), answer=None)


def selection_of(
    row: SelectionRow, *, sampler_version: int, reopen: Callable[[], VideoReader], warning: str = ""
) -> VideoSelection:
    """Return the selection in `row`, with its video.

    Raises:
        SelectionMismatch: a row without a selection.
    """
    if (selection := row.selection) is None:
        raise SelectionMismatch(f"{row.benchmark} {row.question_id}: no selection, {row.error or 'frames not known'}")
    return VideoSelection(**vars(selection), row=row, sampler_version=sampler_version, reopen=reopen, warning=warning)
