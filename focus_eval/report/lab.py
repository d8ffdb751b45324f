"""Tables of evidence recall without a model: each sampler, and its difference to a baseline where it matters."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.errors import InvalidInput
from focus_eval.report.comparisons import p_text
from focus_eval.report.labels import role_mark, sampler_order, told_apart
from focus_eval.report.paired_tests import compare_paired, holm
from focus_eval.report.run import Run
from focus_eval.report.statistics import Estimate, difference_estimate, mean_estimate
from focus_eval.report.table import Figure, Table, TableRow
from focus_eval.rows.records import SelectionRow

RECALL = "recall@2"
BUCKETS = ("short", "medium", "long", "hours")
_KEYS = ["benchmark", "k"]
_Split = Callable[[pd.DataFrame], pd.Series]


def read_traces(folder: Path) -> pd.DataFrame:
    """Return what each trace of a simulation is, one line per question; empty where the folder holds none."""
    files = sorted((folder / "traces").glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return pd.DataFrame(lines)


def lab_frame(run: Run, *, only: Collection[str] | None = None) -> pd.DataFrame:
    """Return `run.selection_frame` with each label the sampler and the options that are not its defaults.

    Args:
        only: selection ids to keep, where the folder may hold those of an older sampler file too.
    """
    variants = {row.selection_id: row for row in run.variants if only is None or row.selection_id in only}
    names = {key: _lab_name(row) for key, row in variants.items()}
    frame: pd.DataFrame = run.selection_frame[run.selection_frame["selection_id"].isin(list(variants))].copy()
    # Benchmark by benchmark: in each simulated world a sampler has another id.
    for _, ids in frame.groupby("benchmark")["selection_id"]:
        here = {key: variants[key] for key in ids.unique()}
        frame.loc[ids.index, "label"] = ids.map(told_apart({key: names[key] for key in here}, here))
    return frame


def _lab_name(row: SelectionRow) -> str:
    short = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in row.changed_options.items()}
    return " ".join([row.sampler, *(f"{name}={value}" for name, value in short.items())]) + role_mark(row)


def recall_overview(frame: pd.DataFrame) -> Table:
    """Return evidence recall within 1, 2 and 5 seconds, frames scored and milliseconds of every sampler and K."""
    rows = []
    for (benchmark, k, label), part in _groups(frame, [*_KEYS, "label"]):
        chosen = part[part["error"].isna()]
        cost = 100 * chosen["n_pulls"].sum() / max(1, chosen["n_frames"].sum())
        recalls = [_percent(_mean(chosen, f"recall@{distance}")) for distance in (1, 2, 5)]
        seconds = Figure(ours=1000 * float(chosen["select_seconds"].mean()), digits=1)
        counts = (str(len(chosen)), str(int(part["error"].notna().sum()) or ""))
        rows.append(
            TableRow((benchmark, str(k), label), (Figure(ours=float(cost), digits=2), *recalls, seconds, *counts))
        )
    return Table(
        name="recall",
        title="Evidence recall",
        key_titles=("Benchmark", "K", "Sampler"),
        columns=("frames scored (%)", "within 1 s (%)", "2 s", "5 s", "ms", "questions", "errors"),
        rows=tuple(rows),
        notes=(
            "Recall: share of a question's evidence moments with a keyframe that near, then the mean over questions, "
            "with a 95 % interval (t on the logit scale, clustered by video).",
            "Frames scored: pulls over frames, summed over questions. ms: time of choosing, without any encoder.",
        ),
    )


def differences_by_length(frame: pd.DataFrame, baseline: str) -> Table:
    """Return paired differences of recall within 2 s to `baseline`, over all questions and by length."""
    buckets = [bucket for bucket in BUCKETS if bucket in set(frame["bucket"])]
    return _differences(frame, baseline, lambda part: part["bucket"], buckets, name="by_length", title="by length")


def differences_by_event(frame: pd.DataFrame, traces: pd.DataFrame, baseline: str) -> list[Table]:
    """Return the differences by mean event length and by how far the events rise; [] where that is not known."""
    if "strength" not in traces:
        return []
    frame = frame.merge(traces, on=["benchmark", "question_id"], how="left", validate="many_to_one")
    lengths, heights = ("< 1 s", "1-2 s", "2-4 s", "4-8 s"), ("< 1", "1-2", "2-3", "> 3")
    by_length = _differences(
        frame, baseline, lambda part: _binned(part["event_seconds"], (1, 2, 4), lengths), lengths,
        name="by_event_length", title="by mean length of the events",
    )  # fmt: skip
    by_height = _differences(
        frame, baseline, lambda part: _binned(part["strength"], (1, 2, 3), heights), heights,
        name="by_strength", title="by height of the events (standard deviations)",
    )  # fmt: skip
    return [by_length, by_height]


def demo_tables(run: Run, baseline: str) -> list[Table]:
    """Return what the demo shows first: recall and cost at the K that was answered, and recall at every K."""
    frame = lab_frame(run)
    answered = sorted(set(run.answer_frame["k"])) if run.answers else []
    lead = [_lead_table(run, frame, int(k), baseline) for k in answered]
    return [*lead, recall_by_k(frame), differences_by_length(frame, baseline)]


def recall_by_k(frame: pd.DataFrame) -> Table:
    """Return recall within 2 s of every sampler, one column per K, and the frames it scored at the largest."""
    ks = sorted(set(frame["k"]))
    rows = []
    for (benchmark, label), part in _by(frame, ["benchmark", "label"]):
        figures = [_percent(_mean(part[part["k"] == k], RECALL)) for k in ks]
        largest = part[part["k"] == part["k"].max()]
        cost = Figure(ours=100 * float(largest["n_pulls"].sum() / max(1, largest["n_frames"].sum())), digits=2)
        rows.append(TableRow((benchmark, label), (cost, *figures)))
    return Table(
        name="recall_by_k",
        title="Evidence recall within 2 s (%)",
        key_titles=("Benchmark", "Sampler"),
        columns=("frames scored (%)", *(f"K = {k}" for k in ks)),
        rows=tuple(rows),
        notes=("A dash: the sampler did not run at that K.", *_failed_note(frame)),
    )


def _lead_table(run: Run, frame: pd.DataFrame, k: int, baseline: str) -> Table:
    part, answers = frame[frame["k"] == k], run.answer_frame
    failed = _failed_note(part, answers[answers["k"] == k])
    answers = answers[(answers["k"] == k) & answers["error"].isna()]
    seen = _answered_by_ceiling(answers)
    base, labels = baseline_label(part, baseline), sorted(set(part["label"]), key=sampler_order)
    pairs = {label: paired_by_question(part, base, label) for label in labels if label != base}
    compared = {
        label: compare_paired(both["score_a"], both["score_b"], both["video"].tolist()) for label, both in pairs.items()
    }
    adjusted = dict(zip(compared, holm([entry.p_value for entry in compared.values()]), strict=True))
    rows = []
    for label in labels:
        mine = part[part["label"] == label]
        scores = answers[answers["selection_id"].isin(set(mine["selection_id"]))]
        cost = Figure(ours=100 * float(mine["n_pulls"].sum() / max(1, mine["n_frames"].sum())), digits=2)
        gain = _points(compared[label].difference, float(adjusted[label])) if label in compared else Figure()
        known = scores[scores["question_id"].isin(seen)]
        accuracy = [_percent(_mean(shown, "score")) if len(shown) else Figure() for shown in (scores, known)]
        rows.append(TableRow((label,), (_percent(_mean(mine, RECALL)), cost, gain, *accuracy)))
    n_questions = answers["question_id"].nunique()
    return Table(
        name=f"demo_k{k}",
        title=f"What finds the evidence, at what cost (K = {k})",
        key_titles=("Sampler",),
        columns=("recall within 2 s (%)", "frames scored (%)", f"minus {base}", "accuracy (%)", "answerable only (%)"),
        rows=tuple(rows),
        notes=(
            f"minus {base}: recall, paired by question, in points; 95 % interval clustered by video; an arrow where "
            "the sign-flip test's p, adjusted by Holm over this table, is below 0.05.",
            f"Answerable: the {len(seen)} of {n_questions} questions that are answered from the frames at the evidence "
            "(oracle). The others are beyond this encoder, whatever is shown.",
            *_effect_note(part, answers),
            *failed,
        ),
    )


def _failed_note(part: pd.DataFrame, answers: pd.DataFrame | None = None) -> list[str]:
    counts = {"selections": part, **({} if answers is None else {"answers": answers})}
    failed = {what: int(rows["error"].notna().sum()) for what, rows in counts.items()}
    said = ", ".join(f"{n} of {len(counts[what])} {what}" for what, n in failed.items() if n)
    return [f"Left out because they failed: {said}."] if said else []


def _answered_by_ceiling(answers: pd.DataFrame) -> set[str]:
    """Questions that are answered from the frames at the evidence; all of them where no ceiling ran."""
    ceiling = answers[answers["sampler"] == "oracle"]
    right = ceiling[ceiling["score"] >= 0.5] if len(ceiling) else answers
    return set(right["question_id"])


def _effect_note(part: pd.DataFrame, answers: pd.DataFrame) -> list[str]:
    """The effect of evidence in view within a question; pooled over questions it would mix in how easy they are."""
    fair = part[~part["sampler"].isin(["oracle", "blind"])]
    keys = ["benchmark", "question_id", "selection_id"]
    joined = answers[[*keys, "video", "score"]].merge(fair[[*keys, RECALL]], on=keys)
    joined["in_view"] = joined[RECALL] > 0
    means = joined.groupby(["question_id", "in_view"])["score"].mean().unstack().dropna()
    if means.empty:
        return []
    videos = joined.drop_duplicates("question_id").set_index("question_id")["video"].loc[means.index].tolist()
    effect = difference_estimate(means[True] - means[False], videos)
    ends = "" if effect.low is None or effect.high is None else f" [{100 * effect.low:.1f}, {100 * effect.high:.1f}]"
    return [
        f"With evidence in view the same question is answered right {100 * effect.value:+.1f}{ends} points more often "
        f"than without, over the {len(means)} questions that some samplers find and some do not."
    ]


def paired_by_question(part: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Return recall of labels `a` and `b` (mean over seeds) and the video of the questions that both have."""
    scores = [
        rows.groupby("question_id").agg(score=(RECALL, "mean"), video=("video", "first"))
        for label in (a, b)
        for rows in [part[(part["label"] == label) & part[RECALL].notna()]]
    ]
    both: pd.DataFrame = scores[0].join(scores[1], how="inner", lsuffix="_a", rsuffix="_b")
    return both.rename(columns={"video_a": "video"})


def baseline_label(frame: pd.DataFrame, baseline: str) -> str:
    """Return the label of sampler `baseline` at its defaults.

    Raises:
        InvalidInput: it did not run, or in several versions.
    """
    if any(label.startswith(f"{baseline} #") for label in frame["label"]):
        raise InvalidInput(
            f"the folder holds rows of several versions of the baseline {baseline!r}; name another folder with --out"
        )
    labels = [label for label in set(frame["label"]) if label == baseline or label.startswith(f"{baseline} [")]
    if not labels:
        raise InvalidInput(f"the baseline {baseline!r} is none of {', '.join(sorted(set(frame['label'])))}")
    return str(labels[0])


def _differences(
    frame: pd.DataFrame, baseline: str, split: _Split, names: Sequence[str], *, name: str, title: str
) -> Table:
    base = baseline_label(frame, baseline)
    lines: list[tuple[tuple[str, ...], float, list[Estimate | None]]] = []
    for (benchmark, k), part in _groups(frame, _KEYS):
        kind = split(part)
        for label in sorted(set(part["label"]) - {base}, key=sampler_order):
            both = paired_by_question(part, base, label)
            if both.empty:
                continue
            compared = compare_paired(both["score_a"], both["score_b"], both["video"].tolist())
            inside = [paired_by_question(part[kind == name], base, label) for name in names]
            gains = [(both["score_b"] - both["score_a"], both["video"].tolist()) for both in inside]
            parts = [difference_estimate(gain, videos) if len(gain) else None for gain, videos in gains]
            lines.append(((benchmark, str(k), label), compared.p_value, [compared.difference, *parts]))
    adjusted = holm([p_value for _, p_value, _ in lines])
    rows = []
    for (keys, _, estimates), p_value in zip(lines, adjusted, strict=True):
        first, *others = (
            _points(estimate, float(p_value) if at == 0 else None) for at, estimate in enumerate(estimates)
        )
        rows.append(TableRow(keys, (first, Figure(ours=float(p_value), text=p_text(float(p_value))), *others)))
    return Table(
        name=name,
        title=f"Evidence recall within 2 s minus that of {base}, {title}",
        key_titles=("Benchmark", "K", "Sampler"),
        columns=("all (points)", "p (Holm)", *names),
        rows=tuple(rows),
        notes=(
            "Paired by question; 95 % interval: t, clustered by video. p: sign-flip permutation over videos, adjusted "
            "over this table by Holm; an arrow marks p below 0.05. Columns after p are not tested.",
            "Too few videos: fewer than 5 in which the two differ.",
        ),
    )


def _by(frame: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    found = [((str(key[0]), str(key[1])), part) for key, part in frame.groupby(keys, sort=False)]
    return sorted(found, key=lambda entry: (entry[0][0], sampler_order(entry[0][1])))


def _groups(frame: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """Groups by `keys`: benchmark and K ascending, samplers in the order of every table."""
    found = [(key, part) for key, part in frame.groupby(keys, sort=False)]
    return sorted(
        found, key=lambda entry: (entry[0][0], entry[0][1], *(sampler_order(label) for label in entry[0][2:]))
    )


def _mean(part: pd.DataFrame, column: str) -> Estimate | None:
    by_question = (
        part[part[column].notna()].groupby("question_id").agg(score=(column, "mean"), video=("video", "first"))
    )
    return mean_estimate(by_question["score"], by_question["video"].tolist()) if len(by_question) else None


def _percent(estimate: Estimate | None) -> Figure:
    if estimate is None:
        return Figure()
    if estimate.low is None or estimate.high is None:
        return Figure(ours=100 * estimate.value, has_too_few_videos=True)
    return Figure(ours=100 * estimate.value, low=100 * estimate.low, high=100 * estimate.high)


def _points(estimate: Estimate | None, p_value: float | None) -> Figure:
    return Figure() if estimate is None else replace(_percent(estimate), is_difference=True, p_adjusted=p_value)


def _binned(values: pd.Series, edges: Sequence[float], names: Sequence[str]) -> pd.Series:
    found = np.array(names)[np.searchsorted(edges, values.to_numpy(), side="right")]
    return pd.Series(found, values.index)
