"""`focus-eval demo`: the whole pipeline on a small benchmark, offline."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from focus_eval.bench.commands.printing import print_table, write_table
from focus_eval.core.errors import MissingDependency
from focus_eval.core.resources import cache_folder, resource_path
from focus_eval.keyframes.commands.console import PERCENT, print_if_slow, print_link, progress_bar, say_how_to_continue

if TYPE_CHECKING:
    from rich.progress import Progress

    from focus_eval.bench.matrix.config import MatrixConfig
    from focus_eval.bench.matrix.engines import Engine
    from focus_eval.bench.matrix.running import RunProgress
    from focus_eval.bench.report.rendering import Table, Value

# Threshold of garbage collection. With Python's default, collection took a tenth of the time of selecting and
# importing. The demo can afford this threshold, since cycles that wait for collection hold only small frames.
GC_THRESHOLD = 50_000
# Videos of the first table, few enough to show the table within seconds.
FIRST_VIDEOS = ("short_a", "short_b")
FIRST_SAMPLERS = ("uniform", "topk", "focus", "even_cover", "scan_cover")
N_FIRST_QUESTIONS = 10  # number of questions about the first videos
RECALL_K = (4, 8, 16, 32)


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("results/runs/demo"),
    data: Annotated[Path, typer.Option(help="Folder for the benchmark's videos.")] = Path("results/demo"),
    k: Annotated[
        list[int], typer.Option("-k", min=1, metavar="INT", help="Keyframes to answer from; repeatable. [default: 8]")
    ] = [],  # noqa: B006
    sampler: Annotated[
        list[str], typer.Option(metavar="NAME", help="Sampler to add, or FILE.py:Class; repeatable.")
    ] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, counted from 0.")] = 1,
) -> None:
    """Run the whole pipeline offline on a small benchmark.

    Builds videos from photographs, runs samplers and their controls on them, and writes a report. Evidence recall is
    measured from 4 to 32 keyframes; the encoder alone answers from 8.
    """
    gc.set_threshold(GC_THRESHOLD)
    run_demo(out, data, k=k, samplers=sampler, seeds=seeds)


def run_demo(folder: Path, data: Path, *, k: list[int], samplers: list[str], seeds: int = 1) -> None:
    """Select and answer at `k`, select without answers at the other K of the recall table, and report."""
    from focus_eval.bench.demo.photo_events import frames_to_draw
    from focus_eval.bench.demo.storyboard import VIDEO_IDS, VIDEOS
    from focus_eval.bench.matrix.engines import LocalEngine
    from focus_eval.bench.matrix.preflight import package_problems
    from focus_eval.bench.matrix.running import complete_run

    os.environ["FOCUS_EVAL_DEMO"] = str(data.resolve())
    os.environ.setdefault("TQDM_DISABLE", "1")  # lmms-eval and its tasks draw bars of their own
    matrices = [_matrix(at, samplers=samplers, seeds=seeds) for at in k or [8]]
    other_k = sorted(set(RECALL_K) - set(k or [8]))
    recall_matrices = [_without_answers(_matrix(at, samplers=samplers, seeds=seeds)) for at in other_k]
    for lack in package_problems([*matrices, *recall_matrices]):
        raise MissingDependency(f"the demo needs {lack.problem}: {lack.fix}")
    # After the matrices, so that their errors come before minutes of rendering.
    engine = LocalEngine(store=folder.parent / "store.sqlite", features=_cache())
    if not (folder / "run.json").exists():
        _run_first(folder, data, engine)
    with progress_bar(PERCENT) as bar:
        progress = DemoProgress(
            bar,
            n_frames=frames_to_draw(data, cache=_cache()),
            video_seconds=sum(seconds for _, seconds, *_ in VIDEOS),
            n_answered=len(matrices),
        )
        build_videos(data, VIDEO_IDS, progress.draw)
        with say_how_to_continue("finished questions"):
            # Run all K together, so that each video is decoded in one pass.
            further_matrices = [*matrices[1:], *recall_matrices]
            run_progress = cast("RunProgress", progress)
            complete_run(matrices[0], selected_with=further_matrices, out=folder, engine=engine, progress=run_progress)
            for matrix in matrices[1:]:
                complete_run(matrix, out=folder, engine=engine, progress=run_progress)
            progress.begin("report")
            shown = _write_report(folder, data / "datasets" / "longvideobench" / "videos")
    # Print after the bar has ended: before, the table would start on the bar's line.
    _print_report(*shown)


def _run_first(folder: Path, data: Path, engine: Engine) -> None:
    """Run a few samplers on the first videos, and print their recall and cost."""
    from focus_eval.bench.demo.storyboard import VIDEO_IDS
    from focus_eval.bench.matrix.cells import narrow
    from focus_eval.bench.matrix.running import complete_run

    first = _without_answers(narrow(_matrix(8, samplers=[], seeds=1), {"sampler": list(FIRST_SAMPLERS)}))
    with print_if_slow(f"first result, on {len(FIRST_VIDEOS)} of {len(VIDEO_IDS)} videos"):
        build_videos(data, FIRST_VIDEOS)
        with say_how_to_continue("finished questions"):
            complete_run(first.model_copy(update={"limit": N_FIRST_QUESTIONS}), out=folder, engine=engine)
    _print_first(folder)


def _cache() -> Path:
    """The cache folder that all demos on this machine share."""
    return cache_folder() / "demo"


# Measured on two idle cores. Only the ratios matter, since the bar scales by the observed rate.
SECONDS_PER_FRAME_DRAWN = 0.00023
SECONDS_OF_SELECTING = 0.01  # per unit of `SelectPhase.work`
SECONDS_OF_ANSWERS = 33.0  # per matrix
SECONDS_OF_REPORT = 17.0


class DemoProgress:
    """One bar over all stages of the demo, in expected seconds; a `matrix.running.RunProgress`.

    Args:
        n_frames: number of frames to draw.
        video_seconds: total length of all videos.
        n_answered: number of matrices with answers.
    """

    def __init__(self, bar: Progress, *, n_frames: int, video_seconds: float, n_answered: int) -> None:
        self._left = {"rendering videos": n_frames * SECONDS_PER_FRAME_DRAWN}
        self._left |= {"select": video_seconds * SECONDS_OF_SELECTING}
        self._left |= {"answer": n_answered * SECONDS_OF_ANSWERS, "report": SECONDS_OF_REPORT}
        self._bar, self._done, self._per_unit = bar, 0.0, 0.0
        self._task = bar.add_task("rendering videos", total=sum(self._left.values()))

    def begin(self, stage: str) -> None:
        """Name the stage."""
        self._bar.update(self._task, description=stage)

    def draw(self, n_frames: int) -> None:
        """Move the bar by frames drawn."""
        self._move("rendering videos", n_frames * SECONDS_PER_FRAME_DRAWN)

    def start(self, phase: str, n_rows: int, work: float) -> None:
        """Begin the stage `phase`."""
        if phase == "select":  # a resumed demo has less work left
            self._left[phase] = work * SECONDS_OF_SELECTING
        self._left |= dict.fromkeys(list(self._left)[: list(self._left).index(phase)], 0.0)
        self._per_unit = self._left[phase] / work
        self._bar.update(self._task, total=self._done + sum(self._left.values()), description=phase)

    def advance(self, phase: str, n_rows: int, n_errors: int, work: float) -> None:
        """Move the bar by work done; rows and errors are not shown."""
        self._move(phase, work * self._per_unit)

    def _move(self, stage: str, seconds: float) -> None:
        """Move the bar by expected `seconds` of a stage."""
        self._done += seconds
        self._left[stage] -= seconds
        self._bar.update(self._task, completed=self._done)


def build_videos(data: Path, video_ids: Sequence[str], draw: Callable[[int], None] = lambda n_frames: None) -> None:
    """Make videos of the demo; `draw` gets the number of frames drawn since its last call."""
    from focus_eval.bench.demo.photo_events import build_photo_events

    n_drawn = Counter[str]()

    def count(video_id: str, n_frames: int, _total: int) -> None:
        """Report the frames of one video that were drawn since the last call."""
        draw(n_frames - n_drawn[video_id])
        n_drawn[video_id] = n_frames

    with say_how_to_continue("finished videos"):
        build_photo_events(data, video_ids=video_ids, progress=count, cache=_cache())


def _matrix(k: int, *, samplers: list[str], seeds: int) -> MatrixConfig:
    """The demo's matrix with the command's options: K, seeds and further samplers."""
    from focus_eval.bench.matrix.cells import check_lists
    from focus_eval.bench.matrix.config import SamplerConfig, load_matrix

    overrides = {"seeds": list(range(seeds)), "k": [k]}
    matrix = load_matrix(resource_path("configs") / "demo.yaml", overrides=overrides)
    # Use AKS's default depth of 5, or for small K the largest depth at which each segment still yields a frame.
    depth = {"options": {"max_depth": min(5, k.bit_length() - 1)}}
    sampler_configs = [item.model_copy(update=depth) if item.sampler == "aks" else item for item in matrix.samplers]
    names = {item.sampler for item in sampler_configs}
    sampler_configs += [SamplerConfig(sampler=sampler) for sampler in samplers if sampler not in names]
    completed = matrix.model_copy(update={"samplers": sampler_configs})
    check_lists(completed)
    return completed


def _without_answers(matrix: MatrixConfig) -> MatrixConfig:
    """The matrix without models, and without blind and oracle, whose recall is 0 and 1."""
    samplers = [sampler for sampler in matrix.samplers if sampler.sampler not in ("blind", "oracle")]
    return matrix.model_copy(update={"models": [], "samplers": samplers})


def _print_first(folder: Path) -> None:
    """Print recall and cost of the samplers on the first videos."""
    from focus_eval.bench.demo.storyboard import VIDEO_IDS
    from focus_eval.bench.report.measures import FORWARDS
    from focus_eval.bench.report.recall_layouts import lab_frame, recall_by_k
    from focus_eval.bench.report.run import load_run

    table = recall_by_k(lab_frame(load_run(folder)))
    columns = {"K = 8": "recall", FORWARDS: "cost"}
    title = f"First result, on {len(FIRST_VIDEOS)} of {len(VIDEO_IDS)} videos: recall and cost in percent"
    print_table(_brief(table, columns, title))


def _brief(table: Table, columns: Mapping[str, str], title: str) -> Table:
    """`table` cut down to 80 characters: only `columns` (old title to new), one interval, no notes."""
    from focus_eval.bench.report.rendering import Value

    def bare(cell: Value | str) -> Value | str:
        """Return a value without its interval; a text unchanged."""
        return replace(cell, shows_interval=False) if isinstance(cell, Value) else cell

    first, *others = (table.columns.index(column) for column in columns)
    rows = tuple(
        replace(row, figures=(row.figures[first], *(bare(row.figures[at]) for at in others))) for row in table.rows
    )
    return replace(table, title=title, columns=tuple(columns.values()), rows=rows, notes=())


def _write_report(folder: Path, videos: Path) -> tuple[Table, str, Path]:
    """Write the report and the demo's tables; return the first table, a sentence on the finding, and the page."""
    from focus_eval.bench.commands.reports import write_report
    from focus_eval.bench.report.page.charts import headline, panels_of
    from focus_eval.bench.report.recall_layouts import demo_tables
    from focus_eval.bench.report.run import load_run

    run = load_run(folder)
    panels = panels_of(run)
    write_report(run, folder, videos=videos, link_thumbnails=True, page_panels=panels)
    tables = demo_tables(run, "focus")
    write_table(tables, folder / "demo.md")
    return tables[0], headline(run, panels), (folder / "report.html").resolve()


def _print_report(table: Table, finding: str, page: Path) -> None:
    """Print the first table, the finding and the address of the page."""
    from focus_eval.bench.report.measures import FORWARDS
    from focus_eval.bench.report.recall_layouts import WITHIN_NEAR

    columns = {f"recall {WITHIN_NEAR} (%)": "recall", FORWARDS: "cost", "accuracy (%)": "accuracy"}
    print_table(_brief(table, columns, "Evidence recall with 95 % intervals, cost and accuracy in percent"))
    typer.echo(finding)
    print_link("All tables, charts and questions", page)
