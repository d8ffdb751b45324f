"""`focus-eval ask`: a model answers a question about a video from its keyframes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.core.errors import InvalidInput, UnknownName, printable
from focus_eval.core.offers import offered
from focus_eval.core.types import checked_query, whole_number
from focus_eval.keyframes.commands.console import (
    SamplerOptions,
    print_folded,
    print_if_slow,
    refuse_idle_options,
    table_console,
)
from focus_eval.keyframes.commands.printing import keyframe_table, print_unspoken
from focus_eval.keyframes.commands.select import (
    EncoderOption,
    EncoderOptions,
    FpsOption,
    FramesOption,
    SamplerOption,
    SeedOption,
    SkipDamagedOption,
    StoreOption,
    SubtitlesEncodingOption,
    SubtitlesOption,
    YesOption,
    check_outputs,
    check_question,
    loaded_selector,
    method_options,
    say_offer,
    select_one,
    subtitles_adder,
    video_argument,
)
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
    from focus_eval.keyframes.llms.registry import Model, Reply
    from focus_eval.keyframes.select import SelectOptions
    from focus_eval.keyframes.selection import VideoSelection


_WHICH_MODEL = (
    "which model? --llm chat:model=NAME for an OpenAI-compatible service (address in OPENAI_BASE_URL, key in "
    "OPENAI_API_KEY), --llm local:checkpoint=FOLDER for one of transformers"
)


_VideoArgument = Annotated[
    Path | None, typer.Argument(help="Video file, or a folder of pictures (with --fps).", parser=video_argument)
]


_LlmOption = Annotated[
    str | None,
    typer.Option(help="Model, e.g. chat:model=gpt-4o-mini (a service) or local:checkpoint=FOLDER; see list llms."),
]
_OutOption = Annotated[Path | None, typer.Option(help="Folder of what becomes of a sheet.")]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print answer and selection as JSON and nothing else.")]
# Options that are refused beside a sheet, whose rows take their place.
_NOT_WITH_SHEET = {
    "video": "a video", "query": "--query", "frames": "--frames", "subtitles": "--subtitles", "as_json": "--json",
    "subtitles_encoding": "--subtitles-encoding",
}  # fmt: skip


def ask(
    context: typer.Context,
    video: _VideoArgument = None,
    question: Annotated[str | None, typer.Argument(help="Question about the video, in words.")] = None,
    llm: _LlmOption = None,
    query: Annotated[str | None, typer.Option(help="What to look for. [default: the question]")] = None,
    k: Annotated[int, typer.Option("-k", help="Number of keyframes that the model sees.")] = 8,
    sampler: SamplerOption = None,
    option: SamplerOptions = [],  # noqa: B006
    encoder: EncoderOption = None,
    encoder_option: EncoderOptions = [],  # noqa: B006
    seed: SeedOption = 0,
    max_tokens: Annotated[int, typer.Option(help="Longest answer in tokens.")] = 512,
    frames: FramesOption = None,
    store: StoreOption = None,
    fps: FpsOption = None,
    subtitles: SubtitlesOption = None,
    subtitles_encoding: SubtitlesEncodingOption = "",
    skip_damaged: SkipDamagedOption = False,
    as_json: _JsonOption = False,
    yes: YesOption = False,
    questions: FromOption = None,
    column: ColumnOptions = [],  # noqa: B006
    videos_folder: VideosOption = None,
    workers: WorkersOption = 1,
    no_sheets: SheetsOption = False,
    out: _OutOption = None,
) -> None:
    """Answer a question about a video with a model.

    Options of a model follow its name: chat:model=NAME,max_side=2048; focus-eval list llms has them all. The model sees
    pictures of at most 1024 pixels, about 750 tokens each; max_side=none sends them whole.
    """
    whole_number(max_tokens, "max_tokens")
    model = _named_model(llm)
    options = method_options(sampler, option, encoder, encoder_option)
    options |= {"k": k, "seed": seed, "store": store, "skip_damaged": skip_damaged}
    sheet_options = SheetOptions(
        columns=column, videos=videos_folder, workers=workers, out=out, fps=fps, draws_sheets=not no_sheets
    )
    if check_sheet_options(context, _NOT_WITH_SHEET) and questions is not None:
        if _ask_from(questions, sheet_options, options, model, max_tokens=max_tokens, yes=yes):
            raise typer.Exit(2)
        return
    if video is None or question is None:
        raise InvalidInput("which video, and which question? VIDEO QUESTION, or a sheet of them with --from")
    refuse_idle_options(context, "without a sheet: name one with --from, or leave it out", "out")
    check_question([video], query)
    question = checked_query(question, noun="question", purpose="to ask")
    check_outputs([video], {"--store": store}, frames, subtitles=subtitles)
    add_subtitles = subtitles_adder(subtitles, subtitles_encoding)
    model.check()
    selector = loaded_selector({**options, "fps": fps}, query or question, yes=yes, is_silent=as_json)
    selection = add_subtitles(select_one(selector, video, query=query or question, quiet=as_json))
    _ask_one(selection, model, question, max_tokens=max_tokens, frames=frames, as_json=as_json)
    say_offer(selector)


def _named_model(llm: str | None) -> Model:
    """The model of `--llm`; an error says how to name one."""
    from focus_eval.keyframes.llms.registry import make_llm

    if llm is None:
        raise InvalidInput(_WHICH_MODEL)
    try:
        return make_llm(llm)
    except UnknownName as error:
        if ":" in llm:
            raise
        raise InvalidInput(f"{error}; one of a service: --llm chat:model={llm}") from error


def _ask_from(
    sheet_path: Path, options: SheetOptions, method: SelectOptions, model: Model, *, max_tokens: int, yes: bool
) -> int:
    """Ask about the rows of a sheet and print the accuracy; return how many rows have no answer."""
    from focus_eval.keyframes.sheet_folder import SheetPlace

    sheet = open_sheet(sheet_path, options)
    sheet_answers = offered("sheet_answers", offered_by="focus_eval.bench")
    model.check()
    keyframe_selector = loaded_selector(method, sheet_path.name, yes=yes, is_silent=False)
    selector = keyframe_selector.load()
    folder = SheetPlace.of(options.out or Path()).folder
    answers = sheet_answers(folder, sheet_path.stem, model, selection_id=selector.selection_id, max_tokens=max_tokens)
    n_failed = select_sheet(sheet, selector, options, quiet=False, answers=answers)
    for line in answers.summary():
        print_folded(line)
    if n_failed < len(sheet.ids):
        say_offer(keyframe_selector)
    return n_failed


def _ask_one(
    selection: VideoSelection, model: Model, question: str, *, max_tokens: int, frames: Path | None, as_json: bool
) -> None:
    """Ask about one video, and print the answer."""
    started = time.perf_counter()
    with print_if_slow(f"asking {model.model_id}"):
        reply = selection.ask(model, question, max_tokens=max_tokens)
    seconds = time.perf_counter() - started
    if frames is not None:
        selection.save_frames(frames)
    if as_json:
        record = {"question": question, "answer": reply.text, "llm": model.model_id, "llm_revision": model.revision}
        costs = {"usage": _usage_with_price(model, reply), "answer_seconds": seconds}
        typer.echo(json.dumps({**record, **costs, "selection": selection.as_dict()}, indent=1, ensure_ascii=False))
    else:
        _print(selection, model, reply, seconds)


def _usage_with_price(model: Model, reply: Reply) -> dict[str, float]:
    """Requests, tokens and dollars, as far as they are known."""
    price = model.price(reply.usage["input"], reply.usage["output"]) if {"input", "output"} <= {*reply.usage} else None
    return {**reply.usage, **({} if price is None else {"dollars": price})}


def _print(selection: VideoSelection, model: Model, reply: Reply, seconds: float) -> None:
    """Print the answer, the keyframes that the model saw, and the cost."""
    typer.echo(printable(reply.text.strip()))
    table_console().print(keyframe_table([selection]))
    print_unspoken(selection)
    usage = _usage_with_price(model, reply)
    tokens = f"{usage['input']:,.0f} + {usage['output']:,.0f} tokens" if "output" in usage else "tokens not known"
    dollars = f"{usage['dollars']:.4f} dollars" if "dollars" in usage else "dollars not known"
    if model.price(0, 0) is None:
        dollars = "dollars not known without prices"
    left_out = [name.removeprefix("without_") for name in usage if name.startswith("without_")]
    refusal_text = f", without {' and '.join(left_out)}, which it refuses" if left_out else ""
    print_folded(f"model: {model.model_id} ({model.revision}){refusal_text}, {tokens}, {dollars}")
    encoder = f" with {selection.row.encoder}" if selection.row.encoder else ""
    print_folded(f"keyframes: {selection.sampler}{encoder}, {selection.n_pulls} frames scored")
    stages = ", ".join(f"{stage} {duration:.2f}" for stage, duration in selection.row.seconds.items())
    print_folded(f"seconds: {stages}, answer {seconds:.2f}")
    if selection.warning:
        print_folded(selection.warning)
