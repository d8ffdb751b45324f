"""`focus-eval select`: choose keyframes of one video."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.core.errors import FocusEvalError, InvalidInput, printable
from focus_eval.core.files import write_text
from focus_eval.core.options import parse_assignments
from focus_eval.core.types import checked_query, local_path
from focus_eval.keyframes.commands.console import (
    SamplerOptions,
    name_completion,
    naming_crash,
    print_if_slow,
    pull_progress,
    refuse_idle_options,
)
from focus_eval.keyframes.commands.printing import print_selection, print_selections
from focus_eval.keyframes.commands.sheets import (
    ColumnOptions,
    FromOption,
    SheetOptions,
    SheetsOption,
    VideosOption,
    WorkersOption,
    check_sheet_options,
    open_sheet,
    select_sheet,
)

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.weights import Checkpoint
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.select import KeyframeSelector, SelectOptions
    from focus_eval.keyframes.selection import VideoSelection

# Options that are refused beside a sheet, whose rows take their place.
NOT_WITH_SHEET = {
    "videos": "a video", "query": "--query", "seconds": "--seconds", "start": "--start", "end": "--end",
    "sheet": "--sheet", "frames": "--frames", "png": "--png", "subtitles": "--subtitles", "as_json": "--json",
    "subtitles_encoding": "--subtitles-encoding",
    "verbose": "--verbose",
}  # fmt: skip

SamplerOption = Annotated[
    str | None,
    typer.Option(
        help="Sampler, e.g. focus:alpha=0.1, or FILE.py:Class. [default: even_cover, 600 frames scored]",
        autocompletion=name_completion("sampler"),
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Encoder, e.g. clip:device=cpu. [default: the best whose weights are here, else offline]",
        autocompletion=name_completion("encoder"),
    ),
]
EncoderOptions = Annotated[
    list[str], typer.Option("--encoder-option", "-e", metavar="NAME=VALUE", help="Option of the encoder; repeatable.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of all random choices.")]
StoreOption = Annotated[Path | None, typer.Option(help="Keep embeddings in this file for the next run.")]
FpsOption = Annotated[float | None, typer.Option(help="Pictures per second of a folder of pictures.")]
SkipDamagedOption = Annotated[
    bool,
    typer.Option("--skip-damaged", help="Of a damaged video, choose among the frames that can be decoded."),
]
FramesOption = Annotated[
    Path | None, typer.Option(help="Write the keyframes to this folder; names and EXIF have the times.")
]
SubtitlesOption = Annotated[
    Path | None, typer.Option(help="The video's subtitles (.srt, .vtt or .json): show the lines of the keyframes.")
]
SubtitlesEncodingOption = Annotated[
    str, typer.Option(help="Encoding of the subtitles, e.g. cp1252. [default: UTF-8, or by the file's mark]")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Download an encoder if none is here and none is named.")]
BackendOption = Annotated[
    str, typer.Option(help="Video reader; see focus-eval list readers.", autocompletion=name_completion("video reader"))
]


def video_argument(text: str) -> Path:
    """Return the path in an argument; refuse an empty argument, which would mean the current folder."""
    if not text:
        raise typer.BadParameter("the path is empty; is a variable not set?")
    return local_path(text)


VideosArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="VIDEO",
        help="Video files, folders of them, or a folder of pictures (with --fps).",
        parser=video_argument,
    ),
]
QueryOption = Annotated[
    str | None, typer.Option(help="What to look for, in words. Without it: a summary, even in time.")
]
ShareOption = Annotated[
    float | None, typer.Option(help="Share of the video's frames that even_cover scores, e.g. 0.05.")
]
SecondsOption = Annotated[float | None, typer.Option(help="Seconds that even_cover may take to score frames.")]
OutOption = Annotated[Path | None, typer.Option(help="Write the selection to this JSON file; - for standard output.")]
ContactSheetOption = Annotated[
    Path | None, typer.Option(help="Write a contact sheet to this file (.png, .pdf or .svg).")
]


def select(
    context: typer.Context,
    videos: VideosArgument = None,
    query: QueryOption = None,
    k: Annotated[int, typer.Option("-k", help="Number of keyframes.")] = 8,
    sampler: SamplerOption = None,
    option: SamplerOptions = [],  # noqa: B006
    share: ShareOption = None,
    seconds: SecondsOption = None,
    start: Annotated[float, typer.Option(help="Choose frames from this second on.")] = 0.0,
    end: Annotated[float | None, typer.Option(help="Choose frames before this second.")] = None,
    encoder: EncoderOption = None,
    encoder_option: EncoderOptions = [],  # noqa: B006
    seed: SeedOption = 0,
    out: OutOption = None,
    sheet: ContactSheetOption = None,
    frames: FramesOption = None,
    png: Annotated[bool, typer.Option("--png", help="Write the keyframes as PNG, not JPEG.")] = False,
    store: StoreOption = None,
    backend: BackendOption = "pyav",
    fps: FpsOption = None,
    subtitles: SubtitlesOption = None,
    subtitles_encoding: SubtitlesEncodingOption = "",
    skip_damaged: SkipDamagedOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the selection as JSON and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the seconds of each stage too.")] = False,
    yes: YesOption = False,
    questions: FromOption = None,
    column: ColumnOptions = [],  # noqa: B006
    videos_folder: VideosOption = None,
    workers: WorkersOption = 1,
    no_sheets: SheetsOption = False,
) -> None:
    """Choose keyframes of videos for a query or a summary."""
    if as_json or quiet or out == Path("-"):
        refuse_idle_options(context, "beside --json, --quiet and --out -: leave it out", "verbose")
    method = method_options(sampler, option, encoder, encoder_option)
    method |= {"k": k, "seed": seed, "store": store, "backend": backend, "share": share, "skip_damaged": skip_damaged}
    options = SheetOptions(
        columns=column, videos=videos_folder, workers=workers, out=out, fps=fps, draws_sheets=not no_sheets
    )
    if check_sheet_options(context, NOT_WITH_SHEET) and questions is not None:
        n_failed = _select_from(questions, options, method, yes=yes, quiet=quiet)
    else:
        method |= {"fps": fps, "seconds": seconds, "start_seconds": start, "end_seconds": end}
        outputs = _Outputs(out, sheet, frames, store, png, as_json, quiet, verbose)
        n_failed = _select_videos(videos, query, method, outputs, (subtitles, subtitles_encoding), yes=yes)
    if n_failed:
        raise typer.Exit(2)


def _select_videos(
    videos: Sequence[Path] | None,
    query: str | None,
    method: SelectOptions,
    outputs: _Outputs,
    subtitles: tuple[Path | None, str],
    *,
    yes: bool,
) -> int:
    """Choose keyframes of videos for one query; return how many have none."""
    if not videos:
        raise InvalidInput("which video? name a file or a folder, or with --from a sheet of videos and queries")
    if outputs.is_png and outputs.frames is None:
        raise InvalidInput("--png writes keyframes as PNG: name a folder for them with --frames")
    words = [str(path) for path in videos if not path.suffix and not path.exists()]
    if query is None and words and len(videos) > 1:
        raise InvalidInput(f"{words[0]}: no such file; what to look for is named by --query '{' '.join(words)}'")
    paths = _video_files(videos, are_pictures=method["fps"] is not None)
    files = {"--out": outputs.out_file, "--sheet": outputs.sheet, "--store": outputs.store}
    check_outputs(paths, files, outputs.frames, subtitles=subtitles[0])
    _check_one_video(paths, outputs.sheet, subtitles[0], k=method["k"])
    check_question(paths, query)
    add_subtitles = subtitles_adder(*subtitles)
    selector = loaded_selector(method, query, yes=yes, is_silent=outputs.quiet or outputs.to_stdout)
    select_path = partial(select_one, selector, query=query, quiet=outputs.quiet)
    n_selected = _select_all(paths, lambda path: add_subtitles(select_path(path, is_first=path == paths[0])), outputs)
    if n_selected:
        say_offer(selector)
    return len(paths) - n_selected


def _select_from(sheet_path: Path, options: SheetOptions, method: SelectOptions, *, yes: bool, quiet: bool) -> int:
    """Choose keyframes of the rows of a sheet; return how many rows have none."""
    sheet = open_sheet(sheet_path, options)
    if (share := method["share"]) is not None:
        # Set it as the sampler's option, so that all videos share one identity.
        method |= {"sampler_options": {**(method["sampler_options"] or {}), "share": share}, "share": None}
    selector = loaded_selector(method, sheet.path.name, yes=yes, is_silent=quiet)
    n_failed = select_sheet(sheet, selector.load(), options, quiet=quiet)
    if n_failed < len(sheet.ids):
        say_offer(selector)
    return n_failed


@dataclass(frozen=True)
class _Outputs:
    """Where selections go: files, a folder of frames, standard output."""

    out: Path | None
    sheet: Path | None
    frames: Path | None
    store: Path | None
    is_png: bool
    as_json: bool
    quiet: bool
    verbose: bool

    @property
    def out_file(self) -> Path | None:
        """The JSON file; None for standard output."""
        return None if self.out == Path("-") else self.out

    @property
    def to_stdout(self) -> bool:
        """True if standard output gets JSON and nothing else."""
        return self.as_json or self.out == Path("-")


def _select_all(paths: Sequence[Path], select_one: Callable[[Path], VideoSelection], outputs: _Outputs) -> int:
    """Select and write the keyframes of each video; return how many videos succeeded.

    The error of a video is printed if there are several videos, and raised if there is only one.
    """
    selections = []
    for path in paths:
        try:
            selections.append(select_one(path))
        except FocusEvalError as error:
            if len(paths) == 1:
                raise
            typer.echo(f"focus-eval: {printable(str(error))}", err=True)
            continue
        if outputs.frames is not None:
            selections[-1].save_frames(outputs.frames, suffix=".png" if outputs.is_png else ".jpg")
        if outputs.sheet is not None:
            selections[-1].save_sheet(outputs.sheet)
    _write_records(selections, outputs.out_file, to_stdout=outputs.to_stdout, is_list=len(paths) > 1)
    if outputs.quiet or outputs.to_stdout:
        return len(selections)
    if len(paths) == 1:
        print_selection(selections[0], verbose=outputs.verbose)
    else:
        print_selections(selections, verbose=outputs.verbose)
    return len(selections)


def method_options(
    sampler: str | None, option: list[str], encoder: str | None, encoder_option: list[str]
) -> SelectOptions:
    """Return sampler and encoder as `KeyframeSelector` takes them, from the options of a command."""
    return {
        "sampler": sampler,
        "sampler_options": parse_assignments(option),
        "encoder": encoder,
        "encoder_options": parse_assignments(encoder_option),
    }


def loaded_selector(options: SelectOptions, query: str | None, *, yes: bool, is_silent: bool) -> KeyframeSelector:
    """Return the selector with its encoders and model loaded; print what loads if that takes long."""
    from focus_eval.keyframes.select import KeyframeSelector
    from focus_eval.keyframes.settings import default_or_named, sampler_for

    selector = KeyframeSelector(**options, may_download=DownloadOffer(yes=yes, is_silent=is_silent))
    has_query = query is not None
    sampler = default_or_named(sampler_for(selector.sampler, has_query=has_query), selector.sampler_options or {})
    if not sampler.needs_encoder and (options["encoder"] is not None or options["encoder_options"]):
        fix = "leave it out" if has_query else "say what to look for with --query, or leave it out"
        raise InvalidInput(f"--encoder has no effect on sampler {sampler.name!r}, which scores no frame: {fix}")
    is_needed_by_name = {
        "encoder": sampler.needs_encoder,
        "scan encoder": sampler.needs_scan,
        "model": sampler.needs_llm,
    }
    loading = " and the ".join(name for name, is_needed in is_needed_by_name.items() if is_needed)
    with print_if_slow(f"loading the {loading}") if loading else nullcontext():
        loaded = selector.load(has_query=has_query)
    say_what_yes_needs(loaded, yes=yes)
    return selector


def select_one(
    selector: KeyframeSelector, video: Path, *, query: str | None, quiet: bool, is_first: bool = True
) -> VideoSelection:
    """Return the selection of one video for `query`, with a progress bar unless `quiet`.

    Args:
        is_first: the encoder loads its weights for the first video alone, and the bar says so.
    """
    loaded = selector.load(has_query=query is not None)
    sampler, encoder = loaded.sampler, loaded.encoder
    title = f"{sampler.name} on {video.name}"
    waiting = f"loading encoder {encoder.name}, decoding the first frames" if encoder and is_first else title
    with naming_crash(video), pull_progress(title, waiting=waiting) if not quiet else nullcontext() as progress:
        return selector.select(video, query, progress=progress)


def _check_one_video(paths: Sequence[Path], sheet: Path | None, subtitles: Path | None, *, k: int) -> None:
    """Refuse several videos for a contact sheet or a file of subtitles, and a sheet that cannot be drawn."""
    from focus_eval.keyframes.export import check_shown, checked_sheet

    if sheet is not None:
        checked_sheet(sheet)
        check_shown(k)
    if sheet is not None and len(paths) > 1:
        raise InvalidInput(f"{sheet}: a sheet shows one video, not {len(paths)}; --frames writes all keyframes")
    if subtitles is not None and len(paths) > 1:
        raise InvalidInput(f"--subtitles {subtitles}: of one video, not of {len(paths)}; select them one by one")


def subtitles_adder(path: Path | None, encoding: str) -> Callable[[VideoSelection], VideoSelection]:
    """Return a function that adds the subtitles of `path` to a selection; without a path it adds none.

    Raises:
        InvalidInput: the file cannot be read, or has no line, or an encoding without a file; raised here, before any
            frame is scored.
    """
    from focus_eval.keyframes.subtitles.files import read_subtitles

    if path is None:
        if encoding:
            raise InvalidInput("--subtitles-encoding has no effect without --subtitles: give both, or neither")
        return lambda selection: selection
    if not read_subtitles(path, encoding=encoding):
        raise InvalidInput(f"--subtitles {path}: the file has no line; leave it out")
    return lambda selection: selection.with_subtitles(path, encoding=encoding)


def _video_files(paths: Sequence[Path], *, are_pictures: bool) -> list[Path]:
    """The video files of `paths`, folders replaced by their videos; a folder of pictures stays."""
    from focus_eval.keyframes.video.verification import is_video_name

    files: list[Path] = []
    for path in paths:
        if are_pictures or not path.is_dir():
            files.append(path)
            continue
        videos = sorted(filter(is_video_name, path.iterdir()))
        if not videos:
            raise InvalidInput(f"{path}: a directory without videos; of pictures give --fps, e.g. 1 for one a second")
        files += videos
    return files


def _write_records(selections: Sequence[VideoSelection], out: Path | None, *, to_stdout: bool, is_list: bool) -> None:
    """Write the selections as JSON to `out` and to standard output: one record, or a list of them."""
    if out is None and not to_stdout:
        return
    if is_list:
        text = "[" + ",\n".join(selection.to_json().rstrip() for selection in selections) + "]\n"
    else:
        text = selections[0].to_json()
    if out is not None:
        write_text(out, text)
    if to_stdout:
        typer.echo(text, nl=False)


@dataclass
class DownloadOffer:
    """The offer to download an encoder: taken by an option, by the environment, or by an answer in a terminal."""

    yes: bool
    is_silent: bool
    remark: str = field(init=False, default="")

    def __call__(self, checkpoint: Checkpoint) -> bool:
        """Return True if the user accepts; without a terminal `remark` says how to accept."""
        from focus_eval.keyframes.encoders.default import DOWNLOAD_VARIABLE, is_download_allowed, offer_text

        offer = offer_text(checkpoint)
        if self.yes or is_download_allowed():
            typer.echo(f"downloading {offer}", err=True)
            return True
        if self.is_silent:
            return False
        if sys.stdin.isatty() and sys.stderr.isatty():
            return typer.confirm(f"Download {offer}?", default=False, err=True)
        self.remark = f"--yes or {DOWNLOAD_VARIABLE}=1 downloads {offer}"
        return False


def say_offer(selector: KeyframeSelector) -> None:
    """Print how to get a better encoder; call it after keyframes were chosen, so that an error is printed alone."""
    offer = selector.may_download
    if isinstance(offer, DownloadOffer) and offer.remark:
        typer.echo(offer.remark, err=True)


def say_what_yes_needs(selector: Selector, *, yes: bool) -> None:
    """If `--yes` found no encoder that can run here, print the command that installs what encoders need."""
    from focus_eval.keyframes.encoders.default import FALLBACK, missing_install

    is_fallback = selector.encoder is not None and selector.encoder.name == FALLBACK
    if yes and is_fallback and (command := missing_install()):
        typer.echo(f"--yes downloaded nothing: the encoders to download need {command}", err=True)


def check_question(videos: Sequence[Path], query: str | None) -> None:
    """Refuse an empty query or a single video that is not there, before an encoder is looked for."""
    from focus_eval.keyframes.video import open_source

    if query is not None:
        checked_query(query)
    if len(videos) == 1 and not videos[0].exists():
        open_source(videos[0])


def check_outputs(
    videos: Sequence[Path], files: Mapping[str, Path | None], frames: Path | None, *, subtitles: Path | None = None
) -> None:
    """Refuse outputs that cannot be written, or that would replace an input or each other, before a frame is scored.

    Args:
        files: output file of each option; None for an option that was not given. The folder of a `--store` need not
            exist.
    """
    # Do not use `Path.resolve`, which raises RuntimeError for a link to itself.
    role_by_place = {os.path.realpath(video): "the video" for video in videos if not video.is_dir()}
    if subtitles is not None:
        role_by_place[os.path.realpath(subtitles)] = "the file of subtitles"
    for option, path in files.items():
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in role_by_place:
            raise InvalidInput(
                f"{option} {path}: this is {role_by_place[place]}, which would be lost; name another file"
            )
        role_by_place[place] = f"the file of {option}"
        is_writable = os.access(os.path.dirname(place), os.W_OK) or option == "--store"
        if path.is_dir() or not is_writable or (os.path.islink(path) and os.path.islink(place)):
            raise InvalidInput(f"{option} {path}: cannot be written; name a file in an existing folder")
    if frames is not None:
        existing = next(folder for folder in (frames, *frames.absolute().parents) if folder.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise InvalidInput(f"--frames {frames}: cannot be written; name another folder")
        if repeated := [name for name, n in Counter(video.stem for video in videos).items() if n > 1]:
            raise InvalidInput(f"{frames}: several videos are called {repeated[0]!r}; write them to different folders")
