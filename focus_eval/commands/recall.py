"""`focus-eval recall`: evidence recall of published selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.errors import InvalidInput
from focus_eval.resources import read_json

if TYPE_CHECKING:
    from focus_eval.benchmarks.question import Question
    from focus_eval.selections import ImportedSelection


def recall(
    annotations: Annotated[Path, typer.Option(help="The benchmark's annotation file.")],
    rates: Annotated[Path, typer.Option(help="CSV with the columns id, duration_s and fps.")],
    selections: Annotated[list[Path], typer.Option(metavar="[NAME=]FILE", help="Selection file; repeatable.")],
    format: Annotated[list[str], typer.Option(metavar="FORMAT", help="Format of each selection file, in order.")] = [],  # noqa: B006
    benchmark: Annotated[str, typer.Option(help="Name of the benchmark.")] = "longvideobench",
    scenes: Annotated[
        Path | None, typer.Option(help="JSON of scenes by question id: [[start, stop], ..] in seconds.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this file (.md, .csv or .tex).")] = None,
) -> None:
    """Compute evidence recall of selection files.

    Uniform and random frames at the same K are shown for comparison. Needs no model and no video.
    """
    from focus_eval.benchmarks.annotations import read_annotations
    from focus_eval.benchmarks.rates import read_rates
    from focus_eval.commands.tables import print_table, write_table
    from focus_eval.report.recall_tables import evidence_cases, recall_rows, scene_rows

    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates)
    missing = next((question.id for question in questions if question.id not in rate_of), None)
    if missing is not None:
        raise InvalidInput(f"{rates}: no rate for question {missing!r}")
    fps = {key: float(rate.fps) for key, rate in rate_of.items()}
    cases = evidence_cases(benchmark, questions, fps)
    loaded = _load(selections, format, questions, fps)
    tables = [recall_rows(cases, loaded, fps)] if any(case.evidence_seconds.size for case in cases) else []
    intervals = {question.id: question.evidence_intervals for question in questions if question.evidence_intervals}
    if scenes is not None or intervals:
        given = _read_scenes(scenes) if scenes is not None else intervals
        tables.append(scene_rows(cases, loaded, fps, given))
    for table in tables:
        print_table(table)
    if out is not None:
        write_table(tables, out)


def _load(
    paths: Sequence[Path], formats: Sequence[str], questions: Sequence[Question], fps: Mapping[str, float]
) -> dict[str, dict[str, ImportedSelection]]:
    from focus_eval.selections import load_selections

    if formats and len(formats) not in (1, len(paths)):
        raise InvalidInput(f"{len(formats)} formats for {len(paths)} selection files; give one, or one for each")
    loaded: dict[str, dict[str, ImportedSelection]] = {}
    for number, path in enumerate(paths):
        name, equals, file = str(path).partition("=")
        if not equals:
            name, file = path.stem, str(path)
        if name in loaded:
            raise InvalidInput(f"two selections are called {name!r}; write NAME=FILE")
        kind = formats[number if len(formats) > 1 else 0] if formats else "auto"
        loaded[name] = load_selections(file, format=kind, questions=questions, fps=fps)
    return loaded


def _read_scenes(path: Path) -> dict[str, list[tuple[float, float]]]:
    try:
        values = read_json(path)
        return {str(key): [(float(start), float(stop)) for start, stop in scenes] for key, scenes in values.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path}: scenes are JSON, question id to [[start, stop], ..] in seconds ({error})"
        ) from error
