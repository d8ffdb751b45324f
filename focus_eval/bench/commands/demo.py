"""`focus-eval demo`: the whole pipeline on a small benchmark, offline."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from focus_eval.bench.commands.tables import print_table, write_table
from focus_eval.core.errors import MissingDependency
from focus_eval.core.resources import cache_folder, resource_path
from focus_eval.keyframes.commands.console import print_if_slow, print_link, progress_bar, say_how_to_continue

if TYPE_CHECKING:
    from rich.progress import Progress

    from focus_eval.bench.matrix.config import MatrixConfig, SamplerConfig
    from focus_eval.bench.matrix.running import RunProgress
    from focus_eval.bench.report.table import Table, Value

# New objects between two looks for cycles: with Python's own number, a tenth of selecting and importing went into them.
# For small frames alone: until it is looked for, a cycle holds its frames.
GC_THRESHOLD = 50_000
# A short, a medium and a long video would take minutes: the quick demo shows the way on the short ones.
QUICK_VIDEOS = ("short_a", "short_b")
QUICK_SAMPLERS = ("uniform", "topk", "focus", "even_cover", "scan_cover", "oracle")
N_FIRST_QUESTIONS = 10  # those of the quick demo's videos
RECALL_K = (4, 8, 16, 32)


def demo(
    quick: Annotated[bool, typer.Option(help="Use two short videos and few samplers (under a minute).")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: results/runs/demo]")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the benchmark's videos. [default: results/demo]")
    ] = None,
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
    name = "demo-quick" if quick else "demo"
    data = data or Path("results") / name
    folder = out or Path("results/runs") / name
    run_demo(name, folder, data, quick=quick, k=k, samplers=sampler, seeds=seeds)
    _show(folder, data / "datasets" / "longvideobench" / "videos")


def run_demo(
    name: str, folder: Path, data: Path, *, quick: bool, k: list[int], samplers: list[str], seeds: int = 1
) -> None:
    """Select and answer at `k`, and select without answers at the other K of the recall table, under one bar."""
    from focus_eval.bench.demo.storyboard import VIDEO_IDS
    from focus_eval.bench.matrix.engines import ProcessEngine
    from focus_eval.bench.matrix.preflight import package_problems
    from focus_eval.bench.matrix.running import complete_run

    os.environ["FOCUS_EVAL_DEMO"] = str(data.resolve())
    os.environ.setdefault("TQDM_DISABLE", "1")  # lmms-eval and its tasks draw bars of their own
    matrices = [_matrix(name, quick=quick, k=at, samplers=samplers, seeds=seeds) for at in k or [8]]
    other_k = [] if quick else sorted(set(RECALL_K) - set(k or [8]))
    recall_matrices = [
        _without_answers(_matrix(name, quick=quick, k=at, samplers=samplers, seeds=seeds)) for at in other_k
    ]
    for lack in package_problems([*matrices, *recall_matrices]):
        raise MissingDependency(f"the demo needs {lack.problem}: {lack.fix}")
    # After the matrices: a mistake in them is told before the minutes that videos take.
    engine = ProcessEngine(store=folder.parent / "store.sqlite", features=_cache())
    if not quick and not (folder / "run.json").exists():
        first = _without_answers(_matrix(name, quick=True, k=8, samplers=[], seeds=1))
        with progress_bar("%") as bar:
            progress = _StageProgress(bar)
            build_videos(data, QUICK_VIDEOS, lambda part: progress.reach(part / 4))
            with say_how_to_continue("finished questions"):
                complete_run(first.model_copy(update={"limit": N_FIRST_QUESTIONS}), out=folder, engine=engine)
        # A table that is printed while a bar is shown would begin behind the bar.
        _print_first(folder)
    with progress_bar("%") as bar:
        progress = _StageProgress(bar)
        progress.begin("rendering videos")
        build_videos(data, QUICK_VIDEOS if quick else VIDEO_IDS, progress.reach)
        run_progress = cast("RunProgress", progress)
        with say_how_to_continue("finished questions"):
            # The frames of all K are decoded in one pass over each video.
            further_matrices = [*matrices[1:], *recall_matrices]
            complete_run(matrices[0], selected_with=further_matrices, out=folder, engine=engine, progress=run_progress)
            for matrix in matrices[1:]:
                complete_run(matrix, out=folder, engine=engine, progress=run_progress)


def _cache() -> Path:
    """Return the folder that demos of this machine share."""
    return cache_folder() / "demo"


class _StageProgress:
    """One bar over all stages of the demo, each as long as its share of the time; a `matrix.running.RunProgress`."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("first result", total=100)
        self._shares = {"first result": (0, 4), "rendering videos": (4, 22), "select": (22, 83), "answer": (83, 96)}
        self._start, self._stop = self._shares["first result"]
        self._n_rows = self._n_done = 0

    def begin(self, stage: str) -> None:
        """Move the bar to the start of `stage` and name it."""
        self._start, self._stop = self._shares[stage]
        self._bar.update(self._task, description=stage, completed=self._start)

    def reach(self, part: float) -> None:
        """Move the bar to `part` of the stage, in [0, 1]."""
        self._bar.update(self._task, completed=round(self._start + part * (self._stop - self._start), 1))

    def start(self, phase: str, n_rows: int) -> None:
        """Begin the stage `phase`, which writes `n_rows` rows."""
        self._n_rows, self._n_done = n_rows, 0
        self.begin(phase)

    def advance(self, phase: str, n_rows: int, n_errors: int) -> None:
        """Move the bar by `n_rows` newly written rows; errors are not shown."""
        self._n_done += n_rows
        self.reach(self._n_done / self._n_rows)


def build_videos(data: Path, video_ids: Sequence[str], reach: Callable[[float], None]) -> None:
    """Make videos of the demo; `reach` gets the part of their frames that is written, in [0, 1]."""
    from focus_eval.bench.demo.photo_events import build_photo_events
    from focus_eval.bench.demo.storyboard import N_FRAMES_BY_VIDEO

    n_written, n_frames = dict[str, int](), sum(N_FRAMES_BY_VIDEO[video_id] for video_id in video_ids)

    def count(video_id: str, n_frames_of_video: int, _total: int) -> None:
        """Note the frames written of one video, and report the part of all."""
        n_written[video_id] = n_frames_of_video
        reach(sum(n_written.values()) / n_frames)

    with say_how_to_continue("finished videos"):
        build_photo_events(data, video_ids=video_ids, progress=count, cache=_cache())


def _matrix(name: str, *, quick: bool, k: int, samplers: list[str], seeds: int) -> MatrixConfig:
    """Return the demo's matrix with the command's options: K, seeds, further samplers, or the quick subset."""
    from focus_eval.bench.matrix.cells import check_lists, narrow
    from focus_eval.bench.matrix.config import SamplerConfig, load_matrix

    overrides = {"name": name, "seeds": list(range(seeds)), "k": [k]}
    matrix = load_matrix(resource_path("configs") / "demo.yaml", overrides=overrides)
    if quick:
        matrix = narrow(matrix, {"sampler": list(QUICK_SAMPLERS)})
    sampler_configs = [_fit_aks_depth(sampler, k) for sampler in matrix.samplers]
    names = {item.sampler for item in sampler_configs}
    sampler_configs += [SamplerConfig(sampler=sampler) for sampler in samplers if sampler not in names]
    completed = matrix.model_copy(update={"samplers": sampler_configs})
    check_lists(completed)
    return completed


def _fit_aks_depth(config: SamplerConfig, k: int) -> SamplerConfig:
    """Return AKS with its default depth of 5, or the largest depth at which a segment still yields a frame."""
    if config.sampler != "aks":
        return config
    return config.model_copy(update={"options": {"max_depth": min(5, k.bit_length() - 1)}})


def _without_answers(matrix: MatrixConfig) -> MatrixConfig:
    """Return the matrix without models, and without blind and oracle, whose recall is 0 and 1."""
    samplers = [sampler for sampler in matrix.samplers if sampler.sampler not in ("blind", "oracle")]
    return matrix.model_copy(update={"models": [], "samplers": samplers})


def _print_first(folder: Path) -> None:
    """Print recall and cost of the samplers on the first videos."""
    from focus_eval.bench.demo.storyboard import VIDEO_IDS
    from focus_eval.bench.report.measures import FORWARDS
    from focus_eval.bench.report.recall_tables import lab_frame, recall_by_k
    from focus_eval.bench.report.run import load_run

    table = recall_by_k(lab_frame(load_run(folder)))
    columns = {"K = 8": "recall", FORWARDS: "cost"}
    title = f"First result, on {len(QUICK_VIDEOS)} of {len(VIDEO_IDS)} videos: recall and cost in percent"
    print_table(_brief(table, columns, title))


def _brief(table: Table, columns: Mapping[str, str], title: str) -> Table:
    """Return `table` with `columns` alone, old title to new, intervals in the first, and no notes: 80 characters."""
    from focus_eval.bench.report.table import Value

    def bare(cell: Value | str) -> Value | str:
        """Return a value without its interval; a text unchanged."""
        return replace(cell, low=None, high=None) if isinstance(cell, Value) else cell

    first, *others = (table.columns.index(column) for column in columns)
    rows = tuple(
        replace(row, figures=(row.figures[first], *(bare(row.figures[at]) for at in others))) for row in table.rows
    )
    return replace(table, title=title, columns=tuple(columns.values()), rows=rows, notes=())


def _show(folder: Path, videos: Path) -> None:
    """Write the report and the demo's tables; print one table, what was found and the address of the page."""
    from focus_eval.bench.commands.reports import write_report
    from focus_eval.bench.report.measures import FORWARDS
    from focus_eval.bench.report.page.charts import headline, panels_of
    from focus_eval.bench.report.recall_tables import WITHIN_NEAR, demo_tables
    from focus_eval.bench.report.run import load_run

    with print_if_slow("writing the report"):
        run = load_run(folder)
        panels = panels_of(run)
        write_report(run, folder, videos=videos, link_thumbnails=True, page_panels=panels)
        tables = demo_tables(run, "focus")
        write_table(tables, folder / "demo.md")
    columns = {f"recall {WITHIN_NEAR} (%)": "recall", FORWARDS: "cost", "accuracy (%)": "accuracy"}
    print_table(_brief(tables[0], columns, "Evidence recall with 95 % intervals, cost and accuracy in percent"))
    typer.echo(headline(run, panels))
    page = (folder / "report.html").resolve()
    print_link("All tables, charts and questions", page)
