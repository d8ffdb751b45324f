"""`select_keyframes`: keyframes of any video for a query.

    selection = select_keyframes("clip.mp4", query="a red car", k=8)
    selection.save_sheet("sheet.png")

Queries given as a list share the decoded and encoded frames of the video.
"""

from __future__ import annotations

import base64
import html
import io
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from focus_eval.core.errors import AnswerError, InvalidInput, SelectionMismatch, VideoError, printable
from focus_eval.core.options import checked_values, named_options, option
from focus_eval.core.resources import whole_text
from focus_eval.core.types import (
    Pixels,
    Question,
    Selection,
    TimedText,
    checked_query,
    frozen_ints,
    usable_path,
    whole_number,
)
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.default import (
    DOWNLOAD_VARIABLE,
    better_encoder_hint,
    default_encoder,
    is_download_allowed,
    offer_text,
)
from focus_eval.keyframes.encoders.registry import make_encoder, make_scan_encoder
from focus_eval.keyframes.llms.registry import AnswersFromEvidence, make_llm, ready_llm
from focus_eval.keyframes.pipeline.relevance import Progress, decoded_batches
from focus_eval.keyframes.pipeline.selector import QuestionRequest, Selector, choose_on_video
from focus_eval.keyframes.pipeline.stretch import Stretch
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.rows.identity import versions
from focus_eval.keyframes.rows.records import SelectionRow, replace_file
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.subtitles.files import read_subtitles
from focus_eval.keyframes.subtitles.prompts import block_text, shown_lines
from focus_eval.keyframes.video import displayed, open_video
from focus_eval.keyframes.video.manifest import FileState, file_state
from focus_eval.keyframes.video.pictures import SUFFIXES as PICTURE_SUFFIXES
from focus_eval.keyframes.video.pictures import PictureReader
from focus_eval.keyframes.video.reader import VideoReader

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from focus_eval.keyframes.encoders.store import RelevanceStore
    from focus_eval.keyframes.encoders.weights import Checkpoint
    from focus_eval.keyframes.llms.registry import Model, Reply

# A file, a folder of pictures, or an array of pictures.
Video: TypeAlias = "str | Path | Pixels"

DEFAULT_SAMPLER, SUMMARY_SAMPLER = "even_cover", "uniform"
NO_QUERY = "(no query)"
# One frame a second of ten minutes: some ten seconds of decoding and scoring on two cores with the small encoder.
DEFAULT_PULLS = 600
SNAP_SECONDS = 1.0
BUDGET_OPTIONS = ("pulls", "every_seconds", "budget_of", "share")
# More keyframes would be illegible on a contact sheet.
MOST_SHOWN = 512
_URL = re.compile(r"(?!file:/)[A-Za-z]{2,}:/")  # Path() collapses the two slashes of a URL
_EXIF_DESCRIPTION = 0x010E
# Queries of one video served at once, a thread each.
QUERIES_AT_ONCE = 64

MAX_QUERY_CHARACTERS = 100_000

log = logging.getLogger("focus_eval")


class Keyframe(NamedTuple):
    """One keyframe: index, presentation time in seconds, and relevance (NaN without scored frames)."""

    frame: int
    seconds: float
    relevance: float


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class VideoSelection(Selection):
    """The keyframes of one video for one query: a `Selection` that can open its video, and a sequence of `Keyframe`.

    Args:
        row: the record of the selection, as a run would write it.
        sampler_version: of the sampler's code.
        reopen: opens the video again to read its pictures.
        warning: says that the encoder may not know what the query names, with the nearest it knows, that it could not
            read the query to its end, or that nothing in the video stands out; "" without such doubts.
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

        Args:
            path: a .srt, .vtt or .json file (see `read_subtitles`).
            encoding: of a file that is neither UTF-8 nor has a byte order mark.

        Raises:
            InvalidInput: no such file, or no subtitles.
        """
        return replace(self, subtitles=read_subtitles(Path(path), encoding=encoding))

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

        with self.reopen() as reader:
            for frame, pixels in reader.stream(frozen_ints(self.keyframes)):
                for _ in range(self.keyframes.count(frame)):
                    yield Image.fromarray(pixels)

    def save_sheet(self, path: str | Path) -> Path:
        """Write the contact sheet, keyframes over the relevance of all scored frames, to a .png, .pdf or .svg file."""
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
        if suffix not in (".jpg", ".png"):
            raise InvalidInput(f"suffix must be .jpg or .png, got {suffix!r}")
        target = usable_path(folder, "a folder of frames")
        is_new = not target.exists()
        try:
            target.mkdir(parents=True, exist_ok=True)
            return self._write_pictures(target, suffix)
        except OSError as error:
            raise InvalidInput(f"{target}: frames cannot be written ({error.strerror or error})") from error
        finally:
            if is_new:
                with suppress(OSError):  # it holds the frames
                    target.rmdir()

    def _write_pictures(self, target: Path, suffix: str) -> list[Path]:
        """Write all pictures, moving them to `target` once the last one is written; return their paths, sorted."""
        with TemporaryDirectory(dir=target, prefix=".part") as part:
            for (frame, seconds, _), image in zip(self, self.images(), strict=True):
                clock = f"{int(seconds) // 3600}h{int(seconds) // 60 % 60:02d}m{seconds % 60:06.3f}s"
                exif = image.getexif()
                exif[_EXIF_DESCRIPTION] = printable(f"{self.path.name}, {seconds:.3f} s, frame {frame}: {self.query}")
                image.save(Path(part) / f"{self.path.stem}_{clock}_{frame}{suffix}", exif=exif, quality=95)
            return [path.replace(target / path.name) for path in sorted(Path(part).iterdir())]

    def messages(self, client: Literal["openai", "transformers"], question: str = "") -> list[dict[str, Any]]:
        """Return one chat message for a model: each keyframe after its time, then the question (default: the query).

        Args:
            client: "openai" has JPEGs as data URLs, for `chat.completions.create(messages=...)`; "transformers" has PIL
                images, for `processor.apply_chat_template`.
        """
        if client not in ("openai", "transformers"):
            raise InvalidInput(f"client must be openai or transformers, got {client!r}")
        parts: list[dict[str, Any]] = []
        for seconds, image in zip(self.times, self.images(), strict=True):
            parts.append({"type": "text", "text": f"[{seconds:.1f} s]"})
            if client == "transformers":
                parts.append({"type": "image", "image": image})
                continue
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=95)
            url = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        return [{"role": "user", "content": [*parts, {"type": "text", "text": question or self.query}]}]

    def ask(self, llm: str | Model, question: str = "", *, max_tokens: int = 512) -> Reply:
        """Return a model's reply to the keyframes, in order with their times, and the question (default: the query).

        Subtitles of the keyframes, if the selection has a subtitle file, stand before the question.

        Args:
            llm: a made model, or its name and options: "chat:model=gpt-4o-mini", "local:checkpoint=FOLDER".
            max_tokens: longest answer.

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

    def as_dict(self) -> dict[str, Any]:
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
            InvalidInput: more than `MOST_SHOWN` keyframes.
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
        """The contact sheet for a notebook; the text of `repr` if it would have too many keyframes."""
        if len(self.keyframes) > MOST_SHOWN:
            return f"<code>{html.escape(repr(self))}</code>"
        from focus_eval.keyframes.figures import write_figure

        buffer = io.BytesIO()
        write_figure(self.sheet, buffer, dpi=100, kind="png")
        picture = base64.b64encode(buffer.getvalue()).decode()
        return f'<img style="max-width: 100%" alt="keyframes" src="data:image/png;base64,{picture}">'


def checked_sheet(path: str | Path) -> Path:
    """Return the path of a contact sheet; raise InvalidInput if no sheet can be written there."""
    file = usable_path(path, "a sheet")
    if file.suffix.lower() not in ("", ".png", ".pdf", ".svg") or file.is_dir():
        raise InvalidInput(f"{file}: a contact sheet is written to a .png, .pdf or .svg file")
    return file


def check_shown(n_keyframes: int) -> None:
    """Raise InvalidInput for more keyframes than a contact sheet shows."""
    if n_keyframes > MOST_SHOWN:
        raise InvalidInput(f"a contact sheet shows at most {MOST_SHOWN} keyframes, not {n_keyframes}")


def select_keyframes(
    video: Video | list[Video],
    *,
    query: str | Sequence[str] | None = None,
    k: int = 8,
    sampler: str | FrameSampler | None = None,
    sampler_options: Mapping[str, Any] | None = None,
    encoder: str | Encoder | None = None,
    encoder_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    store: RelevanceStore | str | Path | None = None,
    backend: str = "pyav",
    share: float | None = None,
    seconds: float | None = None,
    fps: float | None = None,
    start_seconds: float = 0.0,
    end_seconds: float | None = None,
    progress: Progress | None = None,
) -> Any:
    """Return the `VideoSelection` of `k` keyframes of `video` for `query`; lists give lists, by video, then by query.

    >>> select_keyframes("talk.mp4", query="a slide with a chart", k=4, sampler="uniform").keyframes
    (0, 26, 52, 79)

    Args:
        video: a file, a folder of pictures, RGB uint8 `(n, height, width, 3)`, or a list of these.
        query: the text to look for, or a list; the queries of one video share its decoded and encoded frames. None for
            a summary: by default `uniform`, even in time, without a picture twice.
        k: keyframes, at most as many as the video has frames.
        sampler: a name, with options or without ("focus:alpha=0.1"), or a made sampler. By default `even_cover` with
            600 scored frames. A named one shows no picture twice while others are relevant (`distinct`).
        sampler_options, encoder_options: by name, in addition to those in the text.
        encoder: a name or a made encoder. By default the best image-text encoder whose weights are here; else, with
            `FOCUS_EVAL_DOWNLOAD=1` set, a downloaded one; else `offline`. A sampler that never pulls loads none.
        store: file that keeps embeddings for the next call.
        share, seconds: score this share of the video's frames, or as many as take about so long here (by timing a few).
        fps: pictures per second of a folder or an array, which do not state it.
        start_seconds, end_seconds: choose among frames of this stretch of the video, the end left out (None: to its
            end). Frames and times stay those of the whole video.
        progress: callback that is called as frames are scored.

    Raises:
        FocusEvalError: the video, an option or the encoder's output is invalid; the message has the remedy.
    """
    if progress is not None and not isinstance(progress, Progress):
        raise InvalidInput(f"progress must have the methods expect and advance, got {progress!r}")
    settings: dict[str, Any] = {"k": k, "seed": seed, "store": store, "backend": backend, "fps": fps}
    settings |= {"sampler": sampler, "sampler_options": sampler_options or {}, "share": share, "seconds": seconds}
    settings |= {"encoder": encoder, "encoder_options": encoder_options or {}}
    selector = VideoSelector(query=query, start_seconds=start_seconds, end_seconds=end_seconds, **settings)
    videos = video if isinstance(video, list) else [video]
    results = [selector.select(item, progress=progress) for item in videos]
    return results if isinstance(video, list) else results[0]


@dataclass(kw_only=True, eq=False)
class VideoSelector:
    """`select_keyframes` for one video after another: its encoders and its model are loaded once.

    Args:
        may_download: see `default_encoder`; by default the environment decides.

    The other arguments and the errors are those of `select_keyframes`.

    Attributes:
        selector: chooses the frames; of a budget that depends on the video it knows nothing.
    """

    query: str | Sequence[str] | None
    k: int = 8
    sampler: str | FrameSampler | None = None
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    encoder: str | Encoder | None = None
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    store: RelevanceStore | str | Path | None = None
    backend: str = "pyav"
    share: float | None = None
    seconds: float | None = None
    fps: float | None = None
    start_seconds: float = 0.0
    end_seconds: float | None = None
    may_download: Callable[[Checkpoint], bool] | None = None

    selector: Selector = field(init=False)

    def __post_init__(self) -> None:
        """Check the arguments and load the encoders."""
        sampler = sampler_for(self.sampler, has_query=self.query is not None)
        self._is_single = self.query is None or isinstance(self.query, str)
        self._queries: Any = [NO_QUERY if self.query is None else self.query] if self._is_single else self.query
        if not isinstance(self._queries, (list, tuple)):
            raise InvalidInput(f"query must be text or a list of texts, got {self.query!r}")
        self._budget = Budget(share=self.share, seconds=self.seconds)
        stretch = None
        if self.start_seconds != 0 or self.end_seconds is not None:
            stretch = Stretch(start_seconds=self.start_seconds, end_seconds=self.end_seconds)
        self.selector = make_selector(
            sampler,
            self.sampler_options,
            self.encoder,
            self.encoder_options,
            self._budget,
            store=self.store,
            may_download=self.may_download,
            k=self.k,
            seed=self.seed,
            backend=self.backend,
            stretch=stretch,
            timeline="seconds",
            usual_timeline="seconds",
        )

    def select(self, video: Video, *, progress: Progress | None = None) -> Any:
        """Return the `VideoSelection` of one video; for a list of queries a list.

        Queries share the decoded and encoded frames of the video.
        """
        reopen: Callable[[], VideoReader] = partial(
            open_source, video, fps=self.fps, backend=self.backend, store=self.selector.store
        )
        with reopen() as reader:
            if not isinstance(reader, PictureReader) and reader.path.is_file():
                reopen = partial(_open_same, reopen, file_state(reader.path))
            selector = self._budget.apply_to(self.selector, reader)
            if isinstance(reader, PictureReader) and selector.store is not None:
                raise InvalidInput(
                    f"{reader.path}: a store keeps what is known of video files, not of pictures; leave it out"
                )
            if (reason := selector.sampler.infeasible_reason(selector.info_of(reader), k=selector.k)) is not None:
                raise InvalidInput(f"{reader.path}: {selector.sampler.name} would choose no frame: {reason}")
            questions = [query_question(reader.path, query) for query in self._queries]
            warnings = [
                " ".join(filter(None, [vocabulary_warning(selector.encoder, question.query), pixel_warning(reader)]))
                for question in questions
            ]
            requests = [
                QuestionRequest(selector=selector, question=question, path=reader.path) for question in questions
            ]
            outcomes = choose_on_video(reader, requests, progress=progress, at_once=QUERIES_AT_ONCE)
        rows = [outcome.selected_row() for outcome in outcomes]
        warnings = [
            " ".join(filter(None, [warning, cut_warning(row), standout_warning(selector.encoder, row)]))
            for warning, row in zip(warnings, rows, strict=True)
        ]
        for row in rows:
            log.info("%s: %s chose %d keyframes for %r", row.video, row.sampler, len(row.keyframes or ()), row.query)
        version = selector.sampler.version
        selections = [
            selection_of(row, sampler_version=version, reopen=reopen, warning=warning)
            for row, warning in zip(rows, warnings, strict=True)
        ]
        return selections[0] if self._is_single else selections


def make_selector(
    sampler: str | FrameSampler | None,
    sampler_options: Mapping[str, Any],
    encoder: str | Encoder | None,
    encoder_options: Mapping[str, Any],
    budget: Budget,
    *,
    store: RelevanceStore | str | Path | None = None,
    may_download: Callable[[Checkpoint], bool] | None = None,
    **options: Any,
) -> Selector:
    """Return the selector for these names and options; no encoder is made for a sampler that never pulls.

    Args:
        may_download: see `default_encoder`; by default the environment decides.

    Raises:
        FocusEvalError: a name or an option is invalid, options for a made object, or two budgets.
    """
    instance = default_or_named(sampler, _checked_options("sampler", sampler_options))
    budget.check_alone(sampler_options if sampler is None else changed_options(instance))
    _checked_options("encoder", encoder_options)
    scorer: Encoder | None = None
    if instance.needs_encoder and encoder is None:
        if encoder_options:
            raise InvalidInput(f"options of the encoder ({', '.join(encoder_options)}) need its name: encoder=NAME")
        encoder = default_encoder(may_download or _allows_download)
    if instance.needs_encoder and isinstance(encoder, str):
        scorer = make_encoder(encoder, **encoder_options)
    elif instance.needs_encoder:
        _refuse_options("encoder", encoder_options)
        scorer = _checked_encoder(encoder)
    if store is not None:
        from focus_eval.keyframes.encoders.store import RelevanceStore

        store = store if isinstance(store, RelevanceStore) else RelevanceStore(usable_path(store, "store"))
    scan = make_scan_encoder(instance) if instance.needs_scan else None
    llm = ready_llm(instance) if instance.needs_llm else None
    # All queries of a video score the same coarse frames, whose embeddings are shared.
    options |= {"coarse_seed": "video"}
    return Selector(sampler=instance, encoder=scorer, scan_encoder=scan, llm=llm, store=store, **options)


def _allows_download(checkpoint: Checkpoint) -> bool:
    """True if the environment allows the offered download; logs how to allow it if not."""
    if not is_download_allowed():
        log.info("%s=1 downloads %s", DOWNLOAD_VARIABLE, offer_text(checkpoint))
    return is_download_allowed()


def vocabulary_warning(encoder: Encoder | None, query: str) -> str:
    """Return the warning that `query` names something outside the encoder's vocabulary; "" if it does not.

    Raises:
        InvalidInput: a query that the encoder cannot read.
    """
    if encoder is None or query == NO_QUERY or not (neighbours := encoder.known_neighbours(query)):
        return ""
    shown_query = query if len(query) <= 60 else f"{query[:57]}..."
    return (
        f"The encoder {encoder.name} may not know {shown_query!r}; the nearest it knows: {', '.join(neighbours)}. "
        f"For an encoder that knows more: {better_encoder_hint()}."
    )


def cut_warning(row: SelectionRow) -> str:
    """Return the warning that an encoder read the beginning of the query alone; "" if it read all of it."""
    names = {"query_cut": row.encoder, "scan_query_cut": row.scan_encoder}
    cutting = [name for fact, name in names.items() if row.facts.get(fact)]
    if not cutting:
        return ""
    return f"The query is longer than {' and '.join(cutting)} can read: its end was left out. Shorten the query."


def pixel_warning(reader: VideoReader) -> str:
    """Return the warning that a reader shows HDR or stretched pixels as they are stored; "" if it does not."""
    is_known = isinstance(reader, VideoReader)  # a plugin's reader may tell nothing of its pixels
    if not is_known or not reader.shows_stored or reader.appearance.is_plain:
        return ""
    return f"The colours or the shape of its pictures are not those of a screen: {'; '.join(reader.appearance.traits)}."


def standout_warning(encoder: Encoder | None, row: SelectionRow) -> str:
    """Return the warning that no scored frame is relevant enough to show what the query names; "" if one is."""
    selection, bound = row.selection, encoder.least_shown if encoder else None
    if bound is None or selection is None or row.query == NO_QUERY or not selection.pulled_relevance.size:
        return ""
    best = float(np.max(selection.pulled_relevance))
    return f"Nothing stands out: the best relevance is {best:.2f}, below {bound:g}." if best < bound else ""


def default_or_named(sampler: str | FrameSampler | None, options: Mapping[str, Any]) -> FrameSampler:
    """Return the sampler; the default one gets `DEFAULT_PULLS` unless the options set a budget."""
    if sampler is None:
        budget = {} if {*options} & {*BUDGET_OPTIONS} else {"pulls": DEFAULT_PULLS}
        return _for_people(make_sampler(DEFAULT_SAMPLER, **budget, **options), DEFAULT_SAMPLER, options)
    if isinstance(sampler, str):
        return _for_people(make_sampler(sampler, **options), sampler, options)
    _refuse_options("sampler", options)
    if not isinstance(sampler, FrameSampler):
        raise InvalidInput(f"sampler must be a name or a made sampler, got {sampler!r}; see focus-eval list samplers")
    return sampler


def sampler_for(sampler: str | FrameSampler | None, *, has_query: bool) -> str | FrameSampler | None:
    """Return the sampler to make; without a query `SUMMARY_SAMPLER` by default.

    Raises:
        InvalidInput: no query for a sampler that compares frames with one.
    """
    if has_query:
        return sampler
    named = make_sampler(sampler) if isinstance(sampler, str) else sampler
    if isinstance(named, FrameSampler) and (named.needs_llm or (named.needs_encoder and named.reads_query)):
        raise InvalidInput(f"sampler {named.name!r} needs a query: say what to look for")
    return sampler or SUMMARY_SAMPLER


def _for_people(sampler: FrameSampler, name: str, options: Mapping[str, Any]) -> FrameSampler:
    """The sampler without near twins and with keyframes inside scenes, unless the text or the options say."""
    stated = {*options, *named_options(name, {})[1]}
    settings: dict[str, Any] = {"distinct": True, "snap_seconds": SNAP_SECONDS}
    return replace(sampler, **{name: value for name, value in settings.items() if name not in stated})


def open_source(
    video: Video, *, fps: float | None = None, backend: str = "pyav", store: RelevanceStore | None = None
) -> VideoReader:
    """Open a video file, a folder of pictures or an array of them.

    Raises:
        VideoError: the source cannot be read.
        InvalidInput: pictures without `fps`, a file with it, or another type.
    """
    if not isinstance(video, (str, Path, np.ndarray)):
        raise InvalidInput(f"video must be a path or an array of pictures, got {type(video).__name__}")
    if not isinstance(video, np.ndarray) and _URL.match(str(video)):
        url = str(video).replace(":/", "://") if isinstance(video, Path) else video
        raise InvalidInput(
            f"{url}: videos are read from files; download it first (of a page `yt-dlp URL`, of a file `curl -O URL`) "
            "and name the file"
        )
    path = None if isinstance(video, np.ndarray) else usable_path(video, "video")
    if path is not None and not path.is_dir():
        if path.suffix.lower() in PICTURE_SUFFIXES and path.exists():
            raise InvalidInput(
                f"{path}: a picture, not a video; give a folder of pictures, and fps (1 for one a second)"
            )
        if fps is not None:
            raise InvalidInput(f"{path}: a video file has a frame rate of its own; leave fps out")
        return open_video(path, backend=displayed(backend), kept=store)
    if fps is None:
        kind = f"{path}: a directory" if path is not None else "an array"
        raise InvalidInput(f"{kind} of pictures has no frame rate: give fps, e.g. 1 for one a second")
    return PictureReader(path if path is not None else video, fps=fps)  # type: ignore[arg-type]


def changed_options(sampler: FrameSampler) -> list[str]:
    """Return the options of `sampler` that are not at their defaults."""
    return [item.name for item in fields(sampler) if getattr(sampler, item.name) != item.default]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Number of frames to score, as a share of the video or by time; the alternative to options of the sampler.

    Args:
        share: of the video's frames, in (0, 1].
        seconds: time that scoring may take on this machine.

    Raises:
        InvalidInput: both, or a value out of range.
    """

    share: float | None = option(None, above=0, at_most=1)
    seconds: float | None = option(None, above=0)

    def __post_init__(self) -> None:
        """Raise InvalidInput for share and seconds together, or one that is not in its range."""
        if self.share is not None and self.seconds is not None:
            raise InvalidInput("give share or seconds of scoring, not both")
        checked_values("the scoring budget", self)

    @property
    def is_open(self) -> bool:
        """True if neither `share` nor `seconds` is set."""
        return self.share is None and self.seconds is None

    def check_alone(self, options: Iterable[str]) -> None:
        """Raise InvalidInput if sampler options set a budget as well."""
        if not self.is_open and (repeated := {*options} & {*BUDGET_OPTIONS}):
            raise InvalidInput(f"give share or seconds, or the sampler's option {min(repeated)}, not both")

    def apply_to(self, selector: Selector, reader: VideoReader) -> Selector:
        """Return `selector` with this budget as `pulls` of its sampler, so that its rows can be reproduced.

        Raises:
            InvalidInput: a sampler without the option `pulls`.
        """
        sampler = selector.sampler
        if self.is_open:
            return selector
        if "pulls" not in sampler.options:
            raise InvalidInput(
                f"sampler {sampler.name!r} has no option pulls, which share and seconds set (even_cover has): "
                "leave them out"
            )
        n_frames = selector.n_frames_of(reader)
        n = round(self.share * n_frames) if self.share is not None else frames_in(self.seconds or 0, selector, reader)
        pulls: dict[str, Any] = {"pulls": min(max(1, n), n_frames)}
        return selector.with_sampler(replace(sampler, **pulls))


def frames_in(seconds: float, selector: Selector, reader: VideoReader) -> int:
    """Return the number of frames that can be decoded and encoded in `seconds`, from the time that 16 of them take.

    All frames for an encoder that reads none.
    """
    encoder = selector.encoder
    if encoder is None or not encoder.reads_frames:
        return reader.info.n_frames
    frames = np.unique(np.linspace(0, reader.info.n_frames - 1, 16).astype(np.int64))
    encoder.embed(reader.read(frames[:1]))  # loads the weights
    started = time.perf_counter()
    for _, pixels in decoded_batches(reader, frames, frames.size, Meter()):
        encoder.embed(pixels)
    return int(seconds * frames.size / (time.perf_counter() - started))


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


def _open_same(reopen: Callable[[], VideoReader], state: FileState) -> VideoReader:
    """Open a video again; raise VideoError if the file was changed or replaced."""
    reader = reopen()
    if file_state(reader.path) != state:
        reader.close()
        raise VideoError(f"{reader.path}: replaced or changed after its keyframes were chosen; select again")
    return reader


def _checked_options(owner: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """`options`; raises InvalidInput unless they are a mapping by names."""
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise InvalidInput(f"options of the {owner} must be a dict of names and values, got {options!r}")
    return options


def _refuse_options(owner: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidInput for options of an object that is made already."""
    if options:
        raise InvalidInput(f"{owner} is a made object, so its options ({', '.join(options)}) are set already")


def _checked_encoder(encoder: Any) -> Encoder:
    """`encoder` if it is an Encoder; raises InvalidInput, with the fix, otherwise."""
    if isinstance(encoder, Encoder):
        return encoder
    is_older = hasattr(encoder, "relevance") or hasattr(encoder, "relevance_of")
    fix = (
        "derive its class from focus_eval.keyframes.encoders.base.Encoder"
        if is_older
        else "see focus-eval list encoders"
    )
    raise InvalidInput(f"encoder must be a name or a made encoder, got {encoder!r}; {fix}")
