"""Tables of selection rows on annotated moments, intervals and scenes, with uniform and random frames as baselines.

    print_tables([moment_table(cases, {"AKS": rows})])

Every figure is a mean over questions; no model is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import RECALL_SECONDS, distances_text, in_order
from focus_eval.bench.report import recall
from focus_eval.bench.report.recall import PIXELS_NOTE, EvidenceCase, Interval, Scenes, Times, scene_score
from focus_eval.bench.report.rendering import Table, TableRow
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.rows.records import SelectionRow

TOLERANCES_SECONDS = (0.0, *RECALL_SECONDS)
# Questions whose intervals are all at most this long get separate figures, since any frames hit long intervals.
SHORT_SECONDS = 10.0
SHORT = f"up to {SHORT_SECONDS:g} s"
MEAN_FRAMES = "mean_frames"
RowsByName = Mapping[str, Sequence[SelectionRow]]


@dataclass(frozen=True)
class ShownFrames:
    """The frames of one question: the times and scales of chosen frames, or a number of random frames.

    Args:
        times: seconds of the frames; empty for random frames.
        scales: scale of each frame in (0, 1]; None for full frames.
        n_random: number of frames drawn without replacement; None for frames at `times`.
    """

    times: Times = ()
    scales: Times | None = None
    n_random: int | None = None


ShownByQuestion = Mapping[str, ShownFrames]
FiguresOfQuestion = Callable[[EvidenceCase, ShownFrames], dict[str, float]]


def moment_table(cases: Sequence[EvidenceCase], selections: RowsByName) -> Table:
    """Return a table of recall of annotated moments: uniform and random frames at every K used, then `selections`.

    Args:
        cases: questions with their annotated moments.
        selections: rows with times, by name of the selection.
    """
    n_dropped = sum(case.n_dropped for case in cases)
    dropped_note = f"Left out: annotated times more than a second past the end of their video ({n_dropped})."
    has_scales = any(row.scales for rows in selections.values() for row in rows)
    return _table(
        moment_means(cases, _with_baselines(cases, selections)),
        name="recall",
        title="Evidence recall (%)",
        notes=(
            f"Share of the annotated evidence times with a chosen frame within {distances_text(last=' or ')} s, per "
            "question, then the mean of the bucket. random: the exact expectation. frames: mean number of different "
            "frames chosen.",
            *((PIXELS_NOTE,) if has_scales else ()),
            *((dropped_note,) if n_dropped else ()),
        ),
    )


def interval_table(
    cases: Sequence[EvidenceCase],
    intervals: Mapping[str, Sequence[Interval]],
    selections: RowsByName,
) -> Table:
    """Return a table of hits of annotated intervals: uniform and random frames at every K used, then `selections`.

    Questions without an entry in `intervals` are left out. Other arguments are as in `moment_table`.
    """
    annotated = _annotated(cases, intervals)
    longest = [max(stop - start for start, stop in intervals[case.question_id]) for case in annotated]
    is_short = np.asarray(longest) <= SHORT_SECONDS
    groups = _groups(annotated)
    if is_short.any() and not is_short.all():
        groups = [*groups, (SHORT, is_short)]

    def figures(case: EvidenceCase, frames: ShownFrames) -> dict[str, float]:
        """Return the hits of one question's intervals."""
        return interval_figures(intervals[case.question_id], case, frames)

    return _table(
        means_by_bucket(annotated, _with_baselines(annotated, selections), figures, groups),
        name="scenes",
        title="Hits of annotated intervals (%)",
        notes=(
            "frames inside: share of the frames in any interval. hit@d: share of the intervals with a frame inside "
            "(0) or within d seconds, per question, then the mean. Both ends are in. random: the exact expectation.",
        ),
    )


def scene_table(cases: Sequence[EvidenceCase], scenes: Mapping[str, Scenes], selections: RowsByName) -> Table:
    """Return a table of KFS-Bench's measures: uniform frames at every K used, then `selections`.

    Questions without an entry in `scenes` are left out. Other arguments are as in `moment_table`.
    """
    annotated = _annotated(cases, scenes)

    def figures(case: EvidenceCase, frames: ShownFrames) -> dict[str, float]:
        """Return KFS-Bench's measures of one question; UKSS as logarithm, at least log 0.01."""
        score = scene_score(scenes[case.question_id], frames.times)
        log_ukss = float(np.log(max(score.ukss, 0.01)))
        return {"key frames": score.key_frame_rate, "scenes hit": score.scene_hit_rate, "UKSS": log_ukss}

    frames = _with_baselines(annotated, selections, has_random=False)
    table_means = means_by_bucket(annotated, frames, figures, _groups(annotated))
    return _table(
        table_means.assign(UKSS=np.exp(table_means["UKSS"])),
        name="scenes",
        title="Annotated scenes by KFS-Bench's measures (%)",
        notes=(
            "key frames: share of the frames inside any scene. scenes hit: share of the scenes with a frame inside. "
            "UKSS: geometric mean over questions, none below 0.01. A segment lasts to its end + 1 s.",
        ),
    )


def moment_means(cases: Sequence[EvidenceCase], frames: Mapping[str, ShownByQuestion]) -> pd.DataFrame:
    """Return the mean recall of moments by selection and bucket, in the columns of `means_by_bucket`.

    The figures are mean_frames (a repeated frame counts once) and a `recall@d` per distance. Questions without
    annotated moments are left out.

    Args:
        frames: selection name -> question id -> frames.
    """
    annotated = [case for case in cases if case.evidence_seconds.size]
    return means_by_bucket(annotated, frames, moment_figures, bucket_masks(annotated))


def means_by_bucket(
    cases: Sequence[EvidenceCase],
    frames_by_selection: Mapping[str, ShownByQuestion],
    figures: FiguresOfQuestion,
    groups: Sequence[tuple[str, np.ndarray]],
) -> pd.DataFrame:
    """Return the mean figures of the questions by selection and bucket.

    Args:
        frames_by_selection: selection name -> question id -> frames.
        figures: function from a case and its frames to figures by name.
        groups: pairs of a bucket's name and a mask over `cases`.

    Returns:
        Columns selection, bucket, questions and one per figure.

    Raises:
        InvalidInput: a selection lacks a question; names both.
    """
    rows = []
    for name, frames_by_question in frames_by_selection.items():
        missing = next((case.question_id for case in cases if case.question_id not in frames_by_question), None)
        if missing is not None:
            raise InvalidInput(f"{name}: no selection for question {missing!r}")
        of_questions = pd.DataFrame(figures(case, frames_by_question[case.question_id]) for case in cases)
        for bucket, mask in groups:
            mean_figures = of_questions[mask].mean().to_dict()
            rows.append({"selection": name, "bucket": bucket, "questions": int(mask.sum()), **mean_figures})
    return pd.DataFrame(rows)


def moment_figures(case: EvidenceCase, frames: ShownFrames) -> dict[str, float]:
    """Return by column one question's number of different frames (mean_frames) and its `recall@d` per distance."""
    if frames.n_random is not None:
        n_frames = min(frames.n_random, case.n_frames)
        shares = recall.random_recall(case.evidence_seconds, RECALL_SECONDS, case, frames.n_random)
    else:
        n_frames = np.unique(np.asarray(frames.times)).size
        shares = recall.recall_within(case.evidence_seconds, frames.times, RECALL_SECONDS, scales=frames.scales)
    columns = (recall.recall_column(distance) for distance in RECALL_SECONDS)
    return {MEAN_FRAMES: n_frames, **dict(zip(columns, shares.tolist(), strict=True))}


def interval_figures(intervals: Sequence[Interval], case: EvidenceCase, frames: ShownFrames) -> dict[str, float]:
    """Return the share of a question's frames inside any interval, and the share of intervals hit per tolerance.

    The keys are "frames inside" and "hit@d".
    """
    if frames.n_random is not None:
        inside = recall.frames_inside(intervals, np.arange(case.n_frames) / case.fps)
        hits = recall.random_recall(intervals, TOLERANCES_SECONDS, case, frames.n_random)
    else:
        inside = recall.frames_inside(intervals, frames.times)
        hits = recall.recall_within(intervals, frames.times, TOLERANCES_SECONDS)
    columns = (f"hit@{tolerance:g}" for tolerance in TOLERANCES_SECONDS)
    return {"frames inside": inside, **dict(zip(columns, hits.tolist(), strict=True))}


def bucket_masks(cases: Sequence[EvidenceCase]) -> list[tuple[str, np.ndarray]]:
    """Return (length bucket, mask over `cases`) for each bucket used, then for "all"; empty without cases."""
    names = np.array([case.bucket for case in cases])
    masks = [(name, names == name) for name in in_order(names.tolist())]
    return [*masks, ("all", np.ones(len(cases), dtype=bool))] if len(cases) else []


def shown_frames(rows: Sequence[SelectionRow]) -> dict[str, ShownFrames]:
    """Return the times and scales of the rows' keyframes by question id.

    Raises:
        InvalidInput: a row has frame indices but no times, because the rate of its video is unknown.
    """
    unknown = next((row for row in rows if row.times_seconds is None), None)
    if unknown is not None:
        raise InvalidInput(
            f"{unknown.sampler}: no rate for question {unknown.question_id!r}; add it to the CSV of --rates"
        )
    return {row.question_id: ShownFrames(row.times_seconds or (), row.scales) for row in rows}


def _with_baselines(
    cases: Sequence[EvidenceCase], selections: RowsByName, *, has_random: bool = True
) -> dict[str, ShownByQuestion]:
    """Return the frames of uniform and, unless `has_random` is False, random selections per K, then of `selections`.

    Without uniform and random selections if the length of a video is unknown.
    """
    baselines: dict[str, ShownByQuestion] = {}
    published: dict[str, ShownByQuestion] = {name: shown_frames(rows) for name, rows in selections.items()}
    if any(case.duration_seconds is None for case in cases):  # even frames need a known length
        return published
    for k in sorted({max(row.k for row in rows) for rows in selections.values()}):
        times = recall.uniform_times(cases, k=k)
        baselines[f"uniform, K = {k}"] = {key: ShownFrames(even) for key, even in times.items()}
        if has_random:
            baselines[f"random, K = {k}"] = dict.fromkeys(times, ShownFrames(n_random=k))
    return baselines | published


def _annotated(cases: Sequence[EvidenceCase], evidence: Mapping[str, Sequence[object]]) -> list[EvidenceCase]:
    """The cases whose question has an entry in `evidence`; refuses evidence of an unknown question."""
    ids = {case.question_id for case in cases}
    unknown = next((key for key in evidence if key not in ids), None)
    if unknown is not None:
        raise InvalidInput(f"scenes of {unknown!r}, which is not a question of this benchmark")
    return [case for case in cases if evidence.get(case.question_id)]


def _groups(cases: Sequence[EvidenceCase]) -> list[tuple[str, np.ndarray]]:
    """As `bucket_masks`, but only "all" if the cases are of one bucket."""
    groups = bucket_masks(cases)
    return groups[1:] if len(groups) == 2 else groups


def _table(mean_figures: pd.DataFrame, *, name: str, title: str, notes: tuple[str, ...]) -> Table:
    """A table with a line per selection and a column per bucket and figure."""
    buckets = list(dict.fromkeys(mean_figures["bucket"]))
    figures = [column for column in mean_figures.columns if column not in ("selection", "bucket", "questions")]
    columns = [(bucket, item) for bucket in buckets for item in figures if item != MEAN_FRAMES or bucket == "all"]
    rows = []
    for selection, part in mean_figures.groupby("selection", sort=False):
        values = part.set_index("bucket")
        texts = tuple(f"{values.loc[at, item] * (1 if item == MEAN_FRAMES else 100):.1f}" for at, item in columns)
        rows.append(TableRow((str(selection),), texts))
    first = mean_figures.drop_duplicates("bucket")
    counts = ", ".join(f"{bucket} {n}" for bucket, n in zip(first["bucket"], first["questions"], strict=True))
    titles = tuple(
        "frames" if item == MEAN_FRAMES else f"{bucket} {item.removeprefix('recall')}" for bucket, item in columns
    )
    return Table(
        name=name,
        title=title,
        key_titles=("Selection",),
        columns=titles,
        rows=tuple(rows),
        notes=(*notes, f"Questions: {counts}."),
    )
