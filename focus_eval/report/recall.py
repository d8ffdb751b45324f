"""Evidence recall: the share of annotated moments near a chosen frame.

No model is needed: LongVideoBench says at which times the evidence of a question is, and a selection says at which
times its frames are (protocol, "Evidence recall").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from focus_eval.benchmarks.evidence import END_SLACK_SECONDS, RECALL_SECONDS, SLACK_SECONDS, distances_text
from focus_eval.benchmarks.question import Question, in_order
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray, finite_seconds, frozen_floats
from focus_eval.report.table import Table, TableRow
from focus_eval.selections import ImportedSelection

Times = Sequence[float] | FloatArray
PIXELS_NOTE = "Recall is at equal pixels: a frame at scale s is worth a full frame drawn with probability s²."


def recall_column(seconds: float, *, any_size: bool = False) -> str:
    """Return the column of the recall within `seconds`, e.g. "recall@2".

    Args:
        any_size: that in which a small frame counts like a whole one (see `recall_within`).

    Raises:
        InvalidInput: a distance that rows are not measured at.
    """
    if seconds not in RECALL_SECONDS:
        raise InvalidInput(f"evidence is measured within {distances_text()} s, not {seconds:g}")
    return f"recall@{seconds:g}{' any size' if any_size else ''}"


@dataclass(frozen=True, kw_only=True)
class EvidenceCase:
    """One question with annotated evidence, and its video.

    Args:
        question_id, bucket: of the question.
        evidence_seconds: annotated times, shape `(n,)`; those more than a second past the end are dropped.
        duration_seconds: annotated length, above 0.
        fps: average rate of the file, above 0.
        n_frames: frames of the file; `int(duration_seconds * fps)` where it was not probed.
        n_dropped: annotated times that were dropped, those that a benchmark dropped before included.
    """

    question_id: str
    bucket: str
    evidence_seconds: FloatArray
    duration_seconds: float
    fps: float
    n_frames: int = 0
    n_dropped: int = 0

    def __post_init__(self) -> None:
        if not (self.duration_seconds > 0 and self.fps > 0):
            raise InvalidInput(f"{self.question_id}: evidence recall needs a length and a rate above 0")
        times = frozen_floats(self.evidence_seconds)
        inside = times <= self.duration_seconds + END_SLACK_SECONDS
        object.__setattr__(self, "evidence_seconds", frozen_floats(times[inside]))
        object.__setattr__(self, "n_dropped", self.n_dropped + int((~inside).sum()))
        if self.n_frames < 1:
            object.__setattr__(self, "n_frames", max(1, int(self.duration_seconds * self.fps)))


def recall_table(
    cases: Sequence[EvidenceCase],
    times_of: Mapping[str, Mapping[str, Times]],
    *,
    scales_of: Mapping[str, Mapping[str, Times | None]] | None = None,
) -> pd.DataFrame:
    """Return evidence recall by selection, bucket and distance.

    Args:
        times_of: selection name -> question id -> times of its keyframes in seconds.
        scales_of: likewise the scales of its keyframes, None for full size; see `recall_within`.

    Returns:
        Columns selection, bucket ("all" is the last), questions, mean_frames (a repeated frame counts
        once) and one `recall@d` per distance: per question the share of evidence times with a frame within d seconds,
        then the mean over the questions of the bucket. Questions without evidence are left out and do not count.

    Raises:
        InvalidInput: a question that a selection lacks; names both.
    """
    with_evidence = [case for case in cases if case.evidence_seconds.size]
    rows: list[dict[str, object]] = []
    for name, times in times_of.items():
        missing = next((case.question_id for case in with_evidence if case.question_id not in times), None)
        if missing is not None:
            raise InvalidInput(f"{name}: no selection for question {missing!r}")
        scales = (scales_of or {}).get(name, {})
        recalls, n_frames = [], []
        for case in with_evidence:
            at, sizes = times[case.question_id], scales.get(case.question_id)
            recalls.append(recall_within(case.evidence_seconds, at, RECALL_SECONDS, scales=sizes))
            n_frames.append(np.unique(at).size)
        rows += _rows(name, with_evidence, np.array(recalls), np.array(n_frames))
    return pd.DataFrame(rows)


def recall_within(
    evidence_seconds: FloatArray, times: Times, distances: Sequence[float], *, scales: Times | None = None
) -> FloatArray:
    """Return per distance the share of `evidence_seconds` (shape `(n,)`, n >= 1) with one of `times` that near.

    Pixels are a cost: a frame shrunk by `scale` is worth a full frame that is drawn with probability `scale ** 2`. So
    K full frames and any number of smaller ones with the same pixels are compared at equal pixels, and nobody gains by
    shrinking. The result is the exact expectation over the draws.

    Distances are compared with a slack of a microsecond, for times are quotients of integers.

    Args:
        scales: of each time, in (0, 1]; None for full size, or to count a frame of any size like a whole one.
    """
    chosen = np.asarray(times, dtype=np.float64)
    if chosen.size == 0:
        return np.zeros(len(distances))
    if scales is not None:
        apart = np.abs(evidence_seconds[:, np.newaxis] - chosen)
        undrawn = 1.0 - np.square(np.asarray(scales, dtype=np.float64))
        missed = [np.where(apart <= distance + SLACK_SECONDS, undrawn, 1.0).prod(axis=1) for distance in distances]
        return np.array([1.0 - share.mean() for share in missed])
    chosen = np.sort(chosen)
    after = np.searchsorted(chosen, evidence_seconds)
    left = chosen[np.maximum(after - 1, 0)]
    right = chosen[np.minimum(after, chosen.size - 1)]
    nearest = np.minimum(np.abs(evidence_seconds - left), np.abs(evidence_seconds - right))
    return np.array([(nearest <= distance + SLACK_SECONDS).mean() for distance in distances])


def recall(
    keyframe_seconds: ArrayLike,
    evidence_seconds: ArrayLike,
    *,
    within_seconds: float = 2.0,
    scales: ArrayLike | None = None,
) -> float:
    """Return evidence recall@d: the share of annotated moments with a keyframe within `within_seconds`, in [0, 1].

    Args:
        keyframe_seconds: times of the keyframes, shape `(k,)`, any order.
        evidence_seconds: times of the annotated moments, shape `(n,)`, at least one.
        scales: of the keyframes, shape `(k,)`, None for full size: a frame of scale s is worth a full frame drawn with
            probability s ** 2, so that selections are compared at equal pixels.

    Raises:
        InvalidInput: no moment, a time that is not a finite number, a distance below 0, or not one scale in (0, 1]
            per keyframe.
    """
    times, moments = (finite_seconds(seconds, "times of a recall") for seconds in (keyframe_seconds, evidence_seconds))
    if not moments.size or not within_seconds >= 0:
        raise InvalidInput(
            f"recall needs a moment and a distance of at least 0 s, got {moments.size}, {within_seconds}"
        )
    sizes = None if scales is None else np.asarray(scales, dtype=np.float64).reshape(-1)
    if sizes is not None and (sizes.shape != times.shape or not ((sizes > 0) & (sizes <= 1)).all()):
        raise InvalidInput(f"recall needs one scale in (0, 1] per keyframe, got {sizes.size} for {times.size}")
    return float(recall_within(moments, times, (within_seconds,), scales=sizes)[0])


def uniform_times(cases: Iterable[EvidenceCase], *, k: int) -> dict[str, FloatArray]:
    """Return times of `k` frames spread evenly: `linspace(0, T - 1, k)`, untruncated, over the rate."""
    return {case.question_id: np.linspace(0, case.n_frames - 1, k) / case.fps for case in cases}


def random_recall(cases: Sequence[EvidenceCase], *, k: int) -> pd.DataFrame:
    """Return the table of `min(k, T)` frames drawn at random without replacement: its exact expectation, no draws.

    An evidence time is missed when none of the frames within reach is drawn: hypergeometric.
    """
    with_evidence = [case for case in cases if case.evidence_seconds.size]
    reach = np.asarray(RECALL_SECONDS)[:, None] + SLACK_SECONDS
    recalls = [
        chance_of_hit(case.evidence_seconds - reach, case.evidence_seconds + reach, case, k).mean(axis=1)
        for case in with_evidence
    ]
    n_frames = np.array([min(k, case.n_frames) for case in with_evidence])
    return pd.DataFrame(_rows("random", with_evidence, np.array(recalls), n_frames))


def chance_of_hit(starts: FloatArray, stops: FloatArray, case: EvidenceCase, k: int) -> FloatArray:
    """Return the chance that one of `min(k, T)` frames drawn without replacement lies in [start, stop], both ends in.

    Args:
        starts, stops: seconds, of one shape, which the result has too.
    """
    from scipy.special import gammaln

    first = np.maximum(np.ceil(starts * case.fps), 0)
    last = np.minimum(np.floor(stops * case.fps), case.n_frames - 1)
    within = np.maximum(last - first + 1, 0)
    n, drawn = case.n_frames, min(k, case.n_frames)
    others = np.maximum(n - within, drawn)
    log_missed = gammaln(others + 1) - gammaln(others - drawn + 1) - gammaln(n + 1) + gammaln(n - drawn + 1)
    missed = np.where(n - within < drawn, 0.0, np.exp(log_missed))
    return np.asarray(1.0 - missed)


def _rows(name: str, cases: Sequence[EvidenceCase], recalls: FloatArray, n_frames: IntArray) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for bucket, inside in bucket_masks(cases):
        shares = recalls[inside].mean(axis=0)
        at = {recall_column(d): float(share) for d, share in zip(RECALL_SECONDS, shares, strict=True)}
        frames = float(n_frames[inside].mean())
        rows.append({"selection": name, "bucket": bucket, "questions": int(inside.sum()), "mean_frames": frames, **at})
    return rows


def bucket_masks(cases: Sequence[EvidenceCase]) -> list[tuple[str, np.ndarray]]:
    """Return the length buckets that occur, and "all", each with a mask over `cases`."""
    names = np.array([case.bucket for case in cases])
    masks = [(name, names == name) for name in in_order(names.tolist())]
    return [*masks, ("all", np.ones(len(cases), dtype=bool))] if len(cases) else []


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
                n_dropped=question.n_evidence_dropped,
            )
        )
    has_intervals = any(question.evidence_intervals for question in questions)
    if not has_intervals and not any(case.evidence_seconds.size for case in cases):
        raise InvalidInput(f"{benchmark}: its annotation marks no evidence; longvideobench's does")
    return cases


def recall_rows(
    cases: Sequence[EvidenceCase], loaded: Mapping[str, Mapping[str, ImportedSelection]], fps: Mapping[str, float]
) -> Table:
    """Return the recall table: uniform and random at every K that occurs, then the selections."""
    parts: list[pd.DataFrame] = []
    for k in ks_of(loaded):
        parts.append(recall_table(cases, {f"uniform, K = {k}": uniform_times(cases, k=k)}))
        drawn = random_recall(cases, k=k)
        drawn["selection"] = f"random, K = {k}"
        parts.append(drawn)
    scales = {name: {key: chosen.scales for key, chosen in of.items()} for name, of in loaded.items()}
    parts.append(recall_table(cases, times_by_selection(loaded, fps), scales_of=scales))
    names = [recall_column(seconds) for seconds in RECALL_SECONDS]
    n_dropped = sum(case.n_dropped for case in cases)
    left_out = f"Left out: {n_dropped} annotated times more than a second past the end of their video."
    return by_bucket(
        pd.concat(parts),
        ["mean_frames", *names],
        name="recall",
        title="Evidence recall",
        notes=(
            f"Share of the annotated evidence times with a chosen frame within {distances_text(last=' or ')} s, per "
            "question, then the mean of the bucket. random: the exact expectation. frames: mean number of different "
            "frames chosen.",
            *((PIXELS_NOTE,) if any(chosen.scales for of in loaded.values() for chosen in of.values()) else ()),
            *((left_out,) if n_dropped else ()),
        ),
    )


def ks_of(loaded: Mapping[str, Mapping[str, ImportedSelection]]) -> list[int]:
    """Return every K that occurs, ascending."""
    return sorted({max(selection.k for selection in chosen.values()) for chosen in loaded.values()})


def times_by_selection(
    loaded: Mapping[str, Mapping[str, ImportedSelection]], fps: Mapping[str, float]
) -> dict[str, Mapping[str, Times]]:
    """Return the times of the keyframes in seconds, by selection and question."""
    return {
        name: {key: selection.times_at(fps[key]) for key, selection in chosen.items()}
        for name, chosen in loaded.items()
    }


def by_bucket(frame: pd.DataFrame, names: Sequence[str], *, name: str, title: str, notes: tuple[str, ...]) -> Table:
    """One line per selection, one column per bucket and figure."""
    buckets = list(dict.fromkeys(frame["bucket"]))
    columns = [(bucket, item) for bucket in buckets for item in names if item != "mean_frames" or bucket == "all"]
    digits = {"mean_frames": 1}
    rows = []
    for selection, part in frame.groupby("selection", sort=False):
        figures = part.set_index("bucket")
        texts = tuple(f"{figures.loc[bucket, column]:.{digits.get(column, 4)}f}" for bucket, column in columns)
        rows.append(TableRow((str(selection),), texts))
    asked = frame.drop_duplicates("bucket")
    counts = ", ".join(f"{bucket} {n}" for bucket, n in zip(asked["bucket"], asked["questions"], strict=True))
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
