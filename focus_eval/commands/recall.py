"""`focus-eval recall`: how much of the annotated evidence do published frames show?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from focus_eval.benchmarks.question import Question
    from focus_eval.report.recall import EvidenceCase
    from focus_eval.report.table import Table
    from focus_eval.selections import ImportedSelection


def recall(
    annotations: Annotated[Path, typer.Option(help="The benchmark's annotation file.")],
    rates: Annotated[Path, typer.Option(help="CSV of id, duration_s, fps: no videos needed.")],
    selections: Annotated[list[Path], typer.Option(help="Selection file, or NAME=FILE; repeatable.")],
    format: Annotated[list[str], typer.Option(help="Format of each selection file, in their order.")] = [],  # noqa: B006
    benchmark: Annotated[str, typer.Option(help="Benchmark by name.")] = "longvideobench",
    scenes: Annotated[
        Path | None, typer.Option(help="JSON of scenes by question id: [[start, stop], ..] in seconds.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table here too (.md, .csv or .tex).")] = None,
) -> None:
    """Print evidence recall of selection files, with uniform and random rows at the same K; no model, no video."""
    from focus_eval.benchmarks.annotations import read_annotations
    from focus_eval.benchmarks.rates import read_rates
    from focus_eval.commands.tables import print_table, write_table

    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates)
    missing = next((one.id for one in questions if one.id not in rate_of), None)
    if missing is not None:
        raise InvalidInput(f"{rates}: no rate for question {missing!r}")
    fps = {key: float(rate.fps) for key, rate in rate_of.items()}
    cases = evidence_cases(benchmark, questions, fps)
    loaded = _load(selections, format, questions, fps)
    tables = [recall_rows(cases, loaded, fps)]
    if scenes is not None:
        tables.append(scene_rows(cases, loaded, fps, _read_scenes(scenes)))
    for table in tables:
        print_table(table)
    if out is not None:
        write_table(tables, out)


def evidence_cases(benchmark: str, questions: Sequence[Question], fps: Mapping[str, float]) -> list[EvidenceCase]:
    """Return the annotated evidence of `questions`; those without any are part of it and do not count."""
    from focus_eval.benchmarks.registry import make_benchmark
    from focus_eval.report.recall import EvidenceCase
    from focus_eval.types import frozen_floats

    made = make_benchmark(benchmark)
    cases = []
    for one in questions:
        if one.duration_seconds is None:
            raise InvalidInput(f"{one.id}: the annotation states no length; evidence recall needs one")
        cases.append(
            EvidenceCase(
                question_id=one.id,
                bucket=one.bucket or made.bucket(one.duration_seconds),
                evidence_seconds=frozen_floats(one.evidence_seconds),
                duration_seconds=one.duration_seconds,
                fps=fps[one.id],
            )
        )
    if not any(case.evidence_seconds.size for case in cases):
        raise InvalidInput(f"{benchmark}: its annotation marks no evidence; longvideobench's does")
    return cases


def recall_rows(
    cases: Sequence[EvidenceCase], loaded: Mapping[str, Mapping[str, ImportedSelection]], fps: Mapping[str, float]
) -> Table:
    """Return the recall table: uniform and random at every K that occurs, then the selections."""
    import pandas as pd

    from focus_eval.report.recall import random_recall, recall_table, uniform_times

    ks = sorted({max(one.k for one in chosen.values()) for chosen in loaded.values()})
    parts: list[pd.DataFrame] = []
    for k in ks:
        parts.append(recall_table(cases, {f"uniform, K = {k}": uniform_times(cases, k=k)}))
        drawn = random_recall(cases, k=k)
        drawn["selection"] = f"random, K = {k}"
        parts.append(drawn)
    times = {name: {key: one.times_at(fps[key]) for key, one in chosen.items()} for name, chosen in loaded.items()}
    parts.append(recall_table(cases, times))
    names = [name for name in parts[-1].columns if name.startswith("recall@")]
    return _by_bucket(
        pd.concat(parts),
        ["mean_frames", *names],
        name="recall",
        title="Evidence recall",
        notes=(
            "Share of the annotated evidence times with a chosen frame within 1, 2 or 5 s, per question, then the "
            "mean of the bucket. random: the exact expectation. frames: mean number of frames chosen.",
        ),
    )


def scene_rows(
    cases: Sequence[EvidenceCase],
    loaded: Mapping[str, Mapping[str, ImportedSelection]],
    fps: Mapping[str, float],
    scenes: Mapping[str, Sequence[tuple[float, float]]],
) -> Table:
    """Return the table of interval annotations: share of frames inside any scene, share of scenes hit."""
    from focus_eval.report.recall import Times, interval_table, uniform_times

    ks = sorted({max(one.k for one in chosen.values()) for chosen in loaded.values()})
    times: dict[str, Mapping[str, Times]] = {f"uniform, K = {k}": uniform_times(cases, k=k) for k in ks}
    for name, chosen in loaded.items():
        times[name] = {key: one.times_at(fps[key]) for key, one in chosen.items()}
    known = {case.question_id for case in cases}
    unknown = next((key for key in scenes if key not in known), None)
    if unknown is not None:
        raise InvalidInput(f"scenes of {unknown!r}, which is no question of this benchmark")
    return _by_bucket(
        interval_table(cases, scenes, times),
        ["frames_inside", "scenes_hit"],
        name="scenes",
        title="Annotated scenes",
        notes=("Share of the chosen frames inside any scene; share of the scenes with a chosen frame.",),
    )


def _by_bucket(frame: pd.DataFrame, names: Sequence[str], *, name: str, title: str, notes: tuple[str, ...]) -> Table:
    """One line per selection, one column per bucket and figure."""
    from focus_eval.report.table import Table, TableRow

    buckets = list(dict.fromkeys(frame["bucket"]))
    columns = [(bucket, one) for bucket in buckets for one in names if one != "mean_frames" or bucket == "all"]
    rows = []
    for selection, part in frame.groupby("selection", sort=False):
        by_bucket = part.set_index("bucket")
        texts = tuple(f"{by_bucket.loc[bucket, one]:.{1 if one == 'mean_frames' else 4}f}" for bucket, one in columns)
        rows.append(TableRow((str(selection),), texts))
    counts = ", ".join(
        f"{bucket} {int(frame.loc[frame['bucket'] == bucket, 'questions'].iloc[0])}" for bucket in buckets
    )
    titles = tuple(
        "frames" if one == "mean_frames" else f"{bucket} {one.removeprefix('recall').replace('_', ' ')}"
        for bucket, one in columns
    )
    return Table(
        name=name,
        title=title,
        key_titles=("Selection",),
        columns=titles,
        rows=tuple(rows),
        notes=(*notes, f"Questions: {counts}."),
    )


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
        values = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): [(float(start), float(stop)) for start, stop in scenes] for key, scenes in values.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path}: scenes are JSON, question id to [[start, stop], ..] in seconds ({error})"
        ) from error
