"""`focus-eval demo`: the whole thing on this machine, offline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focus_eval.matrix.config import MatrixConfig

# A short, a medium and a long video would take minutes: the quick demo shows the way on the short ones.
QUICK_VIDEOS = ("short_a", "short_b")
QUICK_SAMPLERS = ("uniform", "topk", "focus")


def demo(
    quick: Annotated[bool, typer.Option(help="Two short videos and three samplers; takes under a minute.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: results/runs/demo]")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the benchmark. [default: results/demo]")] = None,
    k: Annotated[list[int], typer.Option("-k", help="Number of keyframes; repeatable. [default: 8 and 16]")] = [],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Number of seeds: 0, 1, ...")] = 1,
) -> None:
    """Run the whole pipeline offline on a small benchmark.

    Builds videos from photographs, runs ten samplers on them, and writes a report.
    """
    name = "demo-quick" if quick else "demo"
    data = data or Path("results") / name
    _build(data, quick=quick)
    os.environ["FOCUS_EVAL_DEMO"] = str(data.resolve())
    matrix = _matrix(name, quick=quick, k=k, seeds=seeds)
    folder = out or Path("results/runs") / name
    _run(matrix, folder)
    _show(folder, data / "datasets" / "longvideobench" / "videos")


def _build(data: Path, *, quick: bool) -> None:
    from focus_eval.commands.progress import progress_bar
    from focus_eval.demo.photo_events import build_photo_events

    with progress_bar("frames") as bar:
        tasks: dict[str, int] = {}

        def show(video_id: str, done: int, total: int) -> None:
            if video_id not in tasks:
                tasks[video_id] = int(bar.add_task(f"rendering {video_id}", total=total))
            bar.update(tasks[video_id], completed=done)  # type: ignore[arg-type]

        build_photo_events(data, video_ids=QUICK_VIDEOS if quick else None, progress=show)


def _matrix(name: str, *, quick: bool, k: list[int], seeds: int) -> MatrixConfig:
    from focus_eval.matrix.config import load_matrix
    from focus_eval.matrix.narrowing import narrow
    from focus_eval.resources import resource_path

    overrides = {"name": name, "seeds": list(range(seeds)), **({"k": k} if k else {"k": [8]} if quick else {})}
    matrix = load_matrix(resource_path("configs") / "demo.yaml", overrides=overrides)
    return narrow(matrix, {"sampler": list(QUICK_SAMPLERS)}) if quick else matrix


def _run(matrix: MatrixConfig, folder: Path) -> None:
    from focus_eval.commands.matrix import run_progress
    from focus_eval.matrix.running import run_matrix

    with run_progress() as progress:
        run_matrix(matrix, out=folder, progress=progress)


def _show(folder: Path, videos: Path) -> None:
    from focus_eval.commands.report import report

    report(folder, videos=videos)
