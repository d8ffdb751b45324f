"""Tables of evidence recall: of selection files, beside uniform and random frames at the same K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from focus_eval.benchmarks.question import Question
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.errors import InvalidInput
from focus_eval.report.recall import (
    EvidenceCase,
    Times,
    interval_table,
    random_recall,
    recall_table,
    uniform_times,
)
from focus_eval.report.table import Table, TableRow
from focus_eval.selections import ImportedSelection
from focus_eval.types import frozen_floats


def evidence_cases(benchmark: str, questions: Sequence[Question], fps: Mapping[str, float]) -> list[EvidenceCase]:
    """Return the annotated evidence of `questions`; those without any are part of it and do not count."""
    made = make_benchmark(benchmark)
    cases = []
    for question in questions:
        if question.duration_seconds is None:
            raise InvalidInput(f"{question.id}: the annotation states no length; evidence recall needs one")
        cases.append(
            EvidenceCase(
                question_id=question.id,
                bucket=question.bucket or made.bucket(question.duration_seconds),
                evidence_seconds=frozen_floats(question.evidence_seconds),
                duration_seconds=question.duration_seconds,
                fps=fps[question.id],
                n_dropped=int(question.extra.get("evidence_dropped", 0)),
            )
        )
    if not any(case.evidence_seconds.size for case in cases) and not any(
        question.evidence_intervals for question in questions
    ):
        raise InvalidInput(f"{benchmark}: its annotation marks no evidence; longvideobench's does")
    return cases


def recall_rows(
    cases: Sequence[EvidenceCase], loaded: Mapping[str, Mapping[str, ImportedSelection]], fps: Mapping[str, float]
) -> Table:
    """Return the recall table: uniform and random at every K that occurs, then the selections."""
    ks = sorted({max(selection.k for selection in chosen.values()) for chosen in loaded.values()})
    parts: list[pd.DataFrame] = []
    for k in ks:
        parts.append(recall_table(cases, {f"uniform, K = {k}": uniform_times(cases, k=k)}))
        drawn = random_recall(cases, k=k)
        drawn["selection"] = f"random, K = {k}"
        parts.append(drawn)
    times = {
        name: {key: selection.times_at(fps[key]) for key, selection in chosen.items()}
        for name, chosen in loaded.items()
    }
    parts.append(recall_table(cases, times))
    names = [name for name in parts[-1].columns if name.startswith("recall@")]
    n_dropped = sum(case.n_dropped for case in cases)
    left_out = f"Left out: {n_dropped} annotated times more than a second past the end of their video."
    return _by_bucket(
        pd.concat(parts),
        ["mean_frames", *names],
        name="recall",
        title="Evidence recall",
        notes=(
            "Share of the annotated evidence times with a chosen frame within 1, 2 or 5 s, per question, then the "
            "mean of the bucket. random: the exact expectation. frames: mean number of different frames chosen.",
            *((left_out,) if n_dropped else ()),
        ),
    )


def scene_rows(
    cases: Sequence[EvidenceCase],
    loaded: Mapping[str, Mapping[str, ImportedSelection]],
    fps: Mapping[str, float],
    scenes: Mapping[str, Sequence[tuple[float, float]]],
) -> Table:
    """Return the table of interval annotations: share of frames inside any scene, share of scenes hit."""
    ks = sorted({max(selection.k for selection in chosen.values()) for chosen in loaded.values()})
    times: dict[str, Mapping[str, Times]] = {f"uniform, K = {k}": uniform_times(cases, k=k) for k in ks}
    for name, chosen in loaded.items():
        times[name] = {key: selection.times_at(fps[key]) for key, selection in chosen.items()}
    known = {case.question_id for case in cases}
    unknown = next((key for key in scenes if key not in known), None)
    if unknown is not None:
        raise InvalidInput(f"scenes of {unknown!r}, which is not a question of this benchmark")
    return _by_bucket(
        interval_table(cases, scenes, times),
        ["frames_inside", "scenes_hit"],
        name="scenes",
        title="Annotated scenes",
        notes=("Share of the chosen frames inside any scene; share of the scenes with a chosen frame.",),
    )


def _by_bucket(frame: pd.DataFrame, names: Sequence[str], *, name: str, title: str, notes: tuple[str, ...]) -> Table:
    """One line per selection, one column per bucket and figure."""
    buckets = list(dict.fromkeys(frame["bucket"]))
    columns = [(bucket, item) for bucket in buckets for item in names if item != "mean_frames" or bucket == "all"]
    rows = []
    for selection, part in frame.groupby("selection", sort=False):
        by_bucket = part.set_index("bucket")
        texts = tuple(
            f"{by_bucket.loc[bucket, column]:.{1 if column == 'mean_frames' else 4}f}" for bucket, column in columns
        )
        rows.append(TableRow((str(selection),), texts))
    counts = ", ".join(
        f"{bucket} {int(frame.loc[frame['bucket'] == bucket, 'questions'].iloc[0])}" for bucket in buckets
    )
    titles = tuple(
        "frames" if column == "mean_frames" else f"{bucket} {column.removeprefix('recall').replace('_', ' ')}"
        for bucket, column in columns
    )
    return Table(
        name=name,
        title=title,
        key_titles=("Selection",),
        columns=titles,
        rows=tuple(rows),
        notes=(*notes, f"Questions: {counts}."),
    )
