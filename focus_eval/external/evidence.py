"""Is a model right more often if the evidence is in view?

Evidence is in view for a question if every annotated moment has a keyframe within d seconds, out of view if none has.
Questions about one video are not independent: every interval and test is clustered by video.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import IN_VIEW_SECONDS, RECALL_SECONDS, in_order
from focus_eval.bench.report import statistics
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.rendering import Cells, Table, Value, difference_table
from focus_eval.bench.report.run import Run, sampler_groups
from focus_eval.bench.report.sign_flips import MIN_VIDEOS
from focus_eval.core.errors import InvalidInput
from focus_eval.external.clustered import ClusteredDesign, Coefficient, deviations, indicators

VIEWS = ("all", "some", "none")
CHANGES = ("gained", "lost", "all both times", "none both times", "in part")
GAINED_LESS_UNCHANGED = "gained less none both times"


@dataclass(frozen=True, kw_only=True)
class ViewAccuracy:
    """Accuracy of one series by the share of the evidence in view.

    Args:
        by_view: accuracy by "all", "some" and "none" in view; None for a view without questions.
        overall: accuracy of all questions with evidence.
        difference: accuracy with all evidence in view minus accuracy with none, with its interval; None if either has
            no question.
        p_value: p of the t test of `difference`; None without an interval.
        same_kind: `difference` among questions of the same category, length and number of moments; None if no such
            kind has questions of both views, or if `difference` has no interval.
    """

    by_view: dict[str, statistics.Estimate | None]
    overall: statistics.Estimate
    difference: statistics.Estimate | None
    p_value: float | None
    same_kind: statistics.Estimate | None


@dataclass(frozen=True, kw_only=True)
class WithinQuestion:
    """The same questions answered from two selections by one model: accuracies from A and B, and their difference.

    The accuracies are None if `difference` compares the changes of two groups of questions.
    """

    change: str
    accuracy_a: float | None
    accuracy_b: float | None
    compared: statistics.PairedComparison


def evidence_answers(run: Run, *, min_seconds: float = 0.0) -> pd.DataFrame:
    """Return the answered questions of `run` that have annotated evidence, one line per question and seed.

    Args:
        min_seconds: leave out shorter videos.

    Returns:
        The columns of `run.answer_frame` and `duration`; every line has a score.

    Raises:
        InvalidInput: no answers, or none with evidence.
    """
    if not run.answers:
        raise InvalidInput(f"{run.name}: has no answers")
    frame = run.answer_frame
    frame = frame[frame["is_answered"] & frame["score"].notna() & frame[recall_column(RECALL_SECONDS[0])].notna()]
    if frame.empty:
        raise InvalidInput(f"{run.name}: no answer to a question with annotated evidence and times of its frames")
    frame = frame.assign(duration=frame["duration_seconds"].astype(float))
    # A video of unknown length fails any bound, so compare only if there is a bound.
    answers: pd.DataFrame = frame[frame["duration"] >= min_seconds] if min_seconds > 0 else frame
    if answers.empty:
        n_unknown = int(frame["duration"].isna().sum())
        unknown = f"; {n_unknown:,} lengths are not known (--min-seconds 0)" if n_unknown else ""
        raise InvalidInput(
            f"{run.name}: no answer to a question with annotated evidence about a video of {min_seconds:g} s or more"
            f"{unknown}"
        )
    return answers


def lengths_text(min_seconds: float) -> str:
    """Return a phrase on the lengths of the videos for a table's title, e.g. "videos of 180 s and more"."""
    return f"videos of {min_seconds:g} s and more" if min_seconds > 0 else "videos of every length"


def view_of(shares: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Return "all", "some" or "none" for each share of the evidence moments with a keyframe near enough."""
    values = np.asarray(shares, dtype=np.float64)
    return np.where(values >= 1.0, "all", np.where(values <= 0.0, "none", "some"))


def view_column(distance: float) -> str:
    """Return the column of `evidence_answers` with the share of evidence in view within `distance` seconds.

    At 0 the column says whether keyframes lie inside annotated intervals.
    """
    return "hit" if distance == 0 else recall_column(distance, any_size=True)


def accuracy_by_view(part: pd.DataFrame, *, distance: float) -> ViewAccuracy:
    """Return the accuracy of one series (lines of `evidence_answers`) by view at `distance` seconds."""
    views = view_of(part[view_column(distance)].to_list())
    scores, videos = part["score"].to_numpy(dtype=np.float64), part["video"].to_numpy()
    by_view = {
        view: statistics.mean_estimate(scores[views == view], videos[views == view].tolist())
        if (views == view).any()
        else None
        for view in VIEWS
    }
    overall = statistics.mean_estimate(scores, videos.tolist())
    if by_view["all"] is None or by_view["none"] is None:
        return ViewAccuracy(by_view=by_view, overall=overall, difference=None, p_value=None, same_kind=None)
    judged = views != "some"
    groups = scores[judged], (views == "all")[judged], videos[judged].tolist()
    difference, p_value = group_difference(*groups)
    kinds = list(zip(*(part.loc[judged, name] for name in ("category", "bucket", "moments")), strict=True))
    same_kind = stratified_difference(*groups, kinds) if difference.low is not None else None
    return ViewAccuracy(
        by_view=by_view,
        overall=overall,
        difference=difference,
        p_value=p_value,
        same_kind=None if same_kind is None else same_kind.estimate(limits=(-1.0, 1.0)),
    )


def group_difference(
    scores: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]],
    is_in_first: Sequence[bool] | np.ndarray[tuple[int], np.dtype[np.bool_]],
    videos: Sequence[object],
) -> tuple[statistics.Estimate, float | None]:
    """Return the mean of the first group minus that of the second with its interval, and the p of its t test.

    The two groups are different questions, but of the same videos. Interval and p come from the CR2 variance of the
    coefficient in the regression of the score on the group, with Satterthwaite's degrees of freedom (see
    `ClusteredDesign`).

    Returns:
        The difference and p; no interval and no p if either group has questions about fewer than 5 videos.
    """
    values, first = np.asarray(scores, dtype=np.float64), np.asarray(is_in_first, dtype=bool)
    value = float(values[first].mean() - values[~first].mean())
    names = np.asarray(videos, dtype=str)
    n_videos = len(set(names))
    if min(len(set(names[first])), len(set(names[~first]))) < MIN_VIDEOS:
        return statistics.Estimate(value, None, None, values.size, n_videos), None
    coefficient = ClusteredDesign(videos).fit(values, first[:, np.newaxis])[0]
    return coefficient.estimate(limits=(-1.0, 1.0)), coefficient.p_value


def stratified_difference(
    scores: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]],
    is_in_first: Sequence[bool] | np.ndarray[tuple[int], np.dtype[np.bool_]],
    videos: Sequence[object],
    strata: Sequence[object],
) -> Coefficient | None:
    """Return the mean of the first group minus that of the second within strata; None if no stratum has both groups.

    The least-squares difference with an intercept per stratum. Each stratum counts by its information, which is 0 if
    it has scores of only one group.

    Args:
        is_in_first: True for scores of the first group.
        strata: stratum of each score.
    """
    first = np.asarray(is_in_first, dtype=np.float64)
    stratum = np.unique([str(item) for item in strata], return_inverse=True)[1]
    if not (np.abs(deviations(first, stratum)) > 1e-12).any():
        return None
    return ClusteredDesign(videos, controls=indicators(stratum.tolist())).fit(scores, first[:, np.newaxis])[0]


def within_question(part_a: pd.DataFrame, part_b: pd.DataFrame, *, distance: float) -> list[WithinQuestion]:
    """Return the changes of answers from selection A to B, by change of the evidence in view, and over all questions.

    gained: no evidence in view in A, all in B; lost: the reverse; in part: some evidence in view in A or B. Each
    question is compared with itself, so its difficulty does not matter. The last item is the difference between
    "gained" and unchanged questions, if both groups have 5 videos.

    Args:
        part_a, part_b: lines of `evidence_answers` of one model. Matched by question, and by seed if both have the same
            seeds.

    Raises:
        InvalidInput: no question in common.
    """
    keys = ["benchmark", "question_id"]
    if set(part_a["seed"]) == set(part_b["seed"]):
        keys.append("seed")
    paired_answers = part_a.merge(part_b, on=keys, suffixes=("_a", "_b"))
    if paired_answers.empty:
        raise InvalidInput("two selections without a question in common")
    column = view_column(distance)
    a, b = view_of(paired_answers[f"{column}_a"].to_list()), view_of(paired_answers[f"{column}_b"].to_list())
    changes = np.full(len(paired_answers), "in part", dtype=object)
    changes[(a == "none") & (b == "all")] = "gained"
    changes[(a == "all") & (b == "none")] = "lost"
    changes[(a == "all") & (b == "all")] = "all both times"
    changes[(a == "none") & (b == "none")] = "none both times"
    comparisons = [
        _compared(change, paired_answers[changes == change]) for change in CHANGES if (changes == change).any()
    ]
    scores = paired_answers[["score_a", "score_b"]].to_numpy(dtype=np.float64)
    gained_beyond_frames = _gained_less_unchanged(
        scores[:, 1] - scores[:, 0], changes, paired_answers["video_a"].tolist()
    )
    return [*comparisons, _compared("all questions", paired_answers), *gained_beyond_frames]


def _gained_less_unchanged(
    differences: np.ndarray[tuple[int], np.dtype[np.float64]], changes: np.ndarray, videos: Sequence[object]
) -> list[WithinQuestion]:
    """One item: mean change of "gained" questions minus that of "none both times"; [] if it cannot be tested."""
    is_judged = np.isin(changes, ["gained", "none both times"])
    gained = changes[is_judged] == "gained"
    if gained.all() or not gained.any():
        return []
    judged_videos = [video for video, judged in zip(videos, is_judged, strict=True) if judged]
    difference, p_value = group_difference(differences[is_judged], gained, judged_videos)
    if p_value is None:
        return []
    compared = statistics.PairedComparison(
        difference=difference, better_a=0, better_b=0, p_value=p_value, is_exact=False
    )
    return [WithinQuestion(change=GAINED_LESS_UNCHANGED, accuracy_a=None, accuracy_b=None, compared=compared)]


def _compared(change: str, paired_answers: pd.DataFrame) -> WithinQuestion:
    """Accuracies and difference of the answers to the same questions from two selections."""
    a, b = paired_answers["score_a"].to_numpy(dtype=np.float64), paired_answers["score_b"].to_numpy(dtype=np.float64)
    compared = statistics.compare_paired(a, b, paired_answers["video_a"].tolist())
    return WithinQuestion(change=change, accuracy_a=float(a.mean()), accuracy_b=float(b.mean()), compared=compared)


_KEYS = ("Benchmark", "Model", "Selection", "K")
_VIEW_COLUMNS = ("All in view", "None in view", "All − none", "p", "p (Holm)", "Same kind", "Some in view", "Overall")
_CLUSTERED = (
    "In brackets 95 % intervals clustered by video (accuracies: t on the logit scale; differences: t, between groups "
    "of questions from CR2), in parentheses the number of (question, seed) pairs."
)
_SAME_KIND = (
    "Same kind: all minus none among questions of the same category, length and number of moments; questions whose "
    "evidence is found may still be easier."
)
_IN_VIEW = (
    "All in view: every annotated moment or interval has a keyframe within d seconds; none in view: none has one. "
    "d = 0: inside the interval."
)


def evidence_tables(run: Run, *, distance: float = IN_VIEW_SECONDS, min_seconds: float = 180.0) -> list[Table]:
    """Return accuracy by evidence in view: by distance, length and category, then two selections question by question.

    Args:
        distance: d in seconds, for all tables but the first.
        min_seconds: leave out shorter videos, where nearly all evidence is in view, except in the table by length.

    Raises:
        InvalidInput: no answers with evidence, or distance 0 with evidence that are moments, not intervals.
    """
    answers = evidence_answers(run, min_seconds=min_seconds)
    if distance == 0 and answers["hit"].isna().any():
        raise InvalidInput(f"{run.name}: nothing lies inside a moment; --distance 0 is for annotated intervals")
    every_length = evidence_answers(run)
    parts, lengths = _series(answers), lengths_text(min_seconds)
    tables = [
        _view_table(
            [
                ((*key, f"{d:g}"), accuracy_by_view(part, distance=d))
                for key, part in parts
                for d in ((0.0, *RECALL_SECONDS) if part["hit"].notna().all() else RECALL_SECONDS)
            ],
            keys=(*_KEYS, "d (s)"),
            name="evidence",
            title=f"Accuracy by evidence in view, {lengths}",
            notes=tuple(_fed_notes(parts)),
        ),
        _view_table(
            [
                ((*key, bucket), accuracy_by_view(selected_lines, distance=distance))
                for key, part in _series(every_length)
                for bucket in in_order(part["bucket"])
                if len(selected_lines := part[part["bucket"] == bucket])
            ],
            keys=(*_KEYS, "Length"),
            name="evidence_by_length",
            title=f"Accuracy by evidence in view within {distance:g} s and length of the video",
        ),
    ]
    by_category = [
        ((*key, str(category)), accuracy_by_view(selected_lines, distance=distance))
        for key, part in parts
        for category, selected_lines in part.groupby("category")
        if category
    ]
    if by_category:
        title = f"Accuracy by evidence in view within {distance:g} s and category, {lengths}"
        tables.append(_view_table(by_category, keys=(*_KEYS, "Category"), name="evidence_by_category", title=title))
    within_table = _within_table(parts, distance=distance, lengths=lengths)
    return [*tables, within_table] if within_table is not None else tables


def _fed_notes(parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]]) -> Iterator[str]:
    """Yield a note for each series that was fed fewer than K frames: its figures are not those of K frames."""
    short_parts: dict[tuple[str, ...], list[tuple[int, int, float, str]]] = {}
    for (benchmark, model, label, k), part in parts:
        n_fed = part["frames_fed"].dropna()
        n_short = int((n_fed < int(k)).sum())
        if n_short:
            mean, fewest = float(n_fed[n_fed < int(k)].mean()), int(n_fed.min())
            text = f"{label}, K = {k}: {n_short:,} of {len(n_fed):,} answers, {mean:.1f} frames on average"
            text += f", {fewest} in {int((n_fed == fewest).sum()):,}"
            short_parts.setdefault((benchmark, model), []).append((n_short, len(n_fed), mean, text))
    for (benchmark, model), entries in short_parts.items():
        n_series = sum(key[:2] == (benchmark, model) for key, _ in parts)
        yield (
            f"{benchmark}, {model}: fewer than K frames were fed in {len(entries)} of {n_series} selections; "
            f"the most often in {max(entries)[3]}."
        )


def _series(answers: pd.DataFrame) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """(key, lines) per benchmark, model, selection and K; sorted by K, then by `sampler_order`."""
    parts = sampler_groups(answers, ["benchmark", "model", "k", "label"])
    return [((benchmark, model, label, str(k)), part) for (benchmark, model, k, label), part in parts]


def _view_table(
    lines: Sequence[tuple[tuple[str, ...], ViewAccuracy]],
    *,
    keys: tuple[str, ...],
    name: str,
    title: str,
    notes: tuple[str, ...] = (),
) -> Table:
    """A table of accuracy by evidence in view, one row per (key, accuracy)."""
    return difference_table(
        [(key, _view_cells(accuracy)) for key, accuracy in lines],
        name=name,
        title=title,
        key_titles=keys,
        columns=_VIEW_COLUMNS,
        notes=(_IN_VIEW, _SAME_KIND, _CLUSTERED, *notes),
    )


def _view_cells(accuracy: ViewAccuracy) -> Cells:
    """The cells of one row by column: accuracies by view, and their differences if they can be tested."""
    estimates = {"All in view": accuracy.by_view["all"], "None in view": accuracy.by_view["none"]}
    estimates |= {"Some in view": accuracy.by_view["some"], "Overall": accuracy.overall}
    cells: Cells = {}
    for column, estimate in estimates.items():
        value = Value.of(estimate)
        cells[column] = value if estimate is None else replace(value, text=f"{value.ours_text} ({estimate.questions})")
    if accuracy.difference is not None:
        cells["All − none"] = statistics.Tested(difference=accuracy.difference, p_value=accuracy.p_value)
    if accuracy.same_kind is not None:
        cells["Same kind"] = Value.of(accuracy.same_kind, is_difference=True)
    return cells


def _within_table(
    parts: Sequence[tuple[tuple[str, ...], pd.DataFrame]], *, distance: float, lengths: str
) -> Table | None:
    """The table of each benchmark and model's first selection against its further ones; None without further ones."""
    lines: list[tuple[tuple[str, ...], Cells]] = []
    first: dict[tuple[str, ...], tuple[tuple[str, ...], pd.DataFrame]] = {}
    for key, part in parts:
        base_key, base = first.setdefault(key[:2], (key, part))
        if base_key != key:
            names = (f"{base_key[2]}, K = {base_key[3]}", f"{key[2]}, K = {key[3]}")
            for item in within_question(base, part, distance=distance):
                cells: Cells = {"Pairs": str(item.compared.difference.questions), "B − A": item.compared}
                accuracies = {"A": item.accuracy_a, "B": item.accuracy_b}
                cells |= {side: Value(ours=100 * share) for side, share in accuracies.items() if share is not None}
                lines.append(((*key[:2], *names, item.change), cells))
    if not lines:
        return None
    return difference_table(
        lines,
        name="evidence_within",
        title=f"The same questions from two selections, evidence within {distance:g} s, {lengths}",
        key_titles=("Benchmark", "Model", "A", "B", "Evidence"),
        columns=("Pairs", "A", "B", "B − A", "p", "p (Holm)"),
        notes=(
            "gained: none in view in A, all in B; lost: all in A, none in B; in part: some of it in view in A or B; "
            f"{GAINED_LESS_UNCHANGED}: what the evidence adds to what B adds anyway.",
            _CLUSTERED,
        ),
    )
