"""Tables of evidence recall and cost by sampler, K and length."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from focus_eval.bench.benchmarks.question import NEAR_SECONDS, in_order
from focus_eval.bench.report import statistics
from focus_eval.bench.report.measures import (
    COSTS,
    QuestionMeans,
    forwards_notes,
    has_sizes,
    paired,
    question_means,
    recall_figure,
)
from focus_eval.bench.report.recall import PIXELS_NOTE, recall_column
from focus_eval.bench.report.rendering import TOO_FEW_NOTE, Cells, Table, Value, difference_table
from focus_eval.bench.report.run import Run, role_mark, sampler_groups, sampler_order, unique_labels
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.rows.records import SelectionRow

if TYPE_CHECKING:
    pass


# Recall within `NEAR_SECONDS`, the one shown where there is room for one.
RECALL = recall_column(NEAR_SECONDS)
WITHIN_NEAR = f"within {NEAR_SECONDS:g} s"
GROUP_KEYS = ["benchmark", "k"]
# Costs within this share count as equal.
EQUAL = 0.02


def lab_frame(run: Run, *, only: Collection[str] | None = None) -> pd.DataFrame:
    """Return `run.selection_frame` with "label" set to the sampler and its options that differ from the defaults.

    Args:
        only: selection ids to keep; None keeps all.
    """
    variants = {row.selection_id: row for row in run.variants if only is None or row.selection_id in only}
    names = {key: _lab_name(row) for key, row in variants.items()}
    frame: pd.DataFrame = run.selection_frame[run.selection_frame["selection_id"].isin(list(variants))].copy()
    # Benchmark by benchmark: in each simulated world a sampler has another id.
    for _, ids in frame.groupby("benchmark")["selection_id"]:
        of_benchmark = {key: variants[key] for key in ids.unique()}
        frame.loc[ids.index, "label"] = ids.map(unique_labels({key: names[key] for key in of_benchmark}, of_benchmark))
    return frame


def _lab_name(row: SelectionRow) -> str:
    """The label of a selection: sampler, scan encoder, changed options and a mark of its role."""
    short = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in row.changed_options.items()}
    scan = [f"({row.scan_encoder})"] if row.scan_encoder else []
    return " ".join([row.sampler, *scan, *(f"{name}={value}" for name, value in short.items())]) + role_mark(row)


def demo_tables(run: Run, baseline: str) -> list[Table]:
    """Return the demo's tables: recall and cost at each answered K, recall at every K, and differences by length."""
    frame = lab_frame(run)
    answered = sorted(set(run.answer_frame["k"])) if run.answers else []
    lead = [_lead_table(run, frame, int(k), baseline) for k in answered]
    return [*lead, recall_by_k(frame), differences_by_length(frame, baseline)]


def recall_by_k(frame: pd.DataFrame) -> Table:
    """Return near recall of every sampler, one column per K, and its costs at its largest K."""
    ks = sorted(set(frame["k"]))
    lines = []
    for (benchmark, label), part in sampler_groups(frame, ["benchmark", "label"]):
        figures = {f"K = {k}": recall_figure(part[part["k"] == k], RECALL) for k in ks}
        lines.append(((benchmark, label), {**cost_values(part[part["k"] == part["k"].max()]), **figures}))
    return Table.of(
        lines,
        name="recall_by_k",
        title=f"Evidence recall {WITHIN_NEAR} (%)",
        key_titles=("Benchmark", "Sampler"),
        notes=("A dash: the sampler did not run at that K.", *forwards_notes(frame), *_failed_note(frame)),
    )


def _lead_table(run: Run, frame: pd.DataFrame, k: int, baseline: str) -> Table:
    """The demo's first table: accuracy, recall and cost of every sampler at one K, against `baseline`."""
    part, answers = frame[frame["k"] == k], run.answer_frame
    failed = _failed_note(part, answers[answers["k"] == k])
    answers = answers[(answers["k"] == k) & answers["error"].isna()]
    ceiling = answers[answers["sampler"] == "oracle"]
    # Without the oracle every answered question counts.
    solvable = set((ceiling[ceiling["score"] >= 0.5] if len(ceiling) else answers)["question_id"])
    base, labels = baseline_label(part, baseline), sorted(set(part["label"]), key=sampler_order)
    lines = []
    for label in labels:
        selections = part[part["label"] == label]
        scores = answers[answers["selection_id"].isin(set(selections["selection_id"]))]
        answerable_scores = scores[scores["question_id"].isin(solvable)]
        cells: Cells = {
            f"recall {WITHIN_NEAR} (%)": recall_figure(selections, RECALL),
            **cost_values(selections),
            **at_any_size(part, selections),
            "accuracy (%)": recall_figure(scores, "score"),
            "answerable only (%)": recall_figure(answerable_scores, "score"),
        }
        if label != base:
            cells[f"minus {base}"] = _compared(*paired_by_question(part, base, label))
        lines.append(((label,), cells))
    n_questions, any_size = answers["question_id"].nunique(), at_any_size(part, part)
    return difference_table(
        lines,
        name=f"demo_k{k}",
        title=f"Evidence recall and cost, K = {k}",
        key_titles=("Sampler",),
        columns=(
            f"recall {WITHIN_NEAR} (%)",
            *any_size,
            *COSTS,
            f"minus {base}",
            "accuracy (%)",
            "answerable only (%)",
        ),
        notes=(
            *forwards_notes(part),
            *_equal_costs(part, base, labels),
            f"minus {base}: recall, paired by question, in points; 95 % interval: sign flips over videos.",
            f"Answerable: the {len(solvable)} of {n_questions} questions that are answered from the frames at the "
            "evidence (oracle). The others are beyond this encoder, whatever is shown.",
            *_effect_note(part, answers),
            *sizes_note(part),
            *failed,
        ),
    )


def _failed_note(part: pd.DataFrame, answers: pd.DataFrame | None = None) -> list[str]:
    """A note with the numbers of failed selections and answers, as a list of one; [] if none failed."""
    frames = {"selections": part, **({} if answers is None else {"answers": answers})}
    failures = {kind: int(frame["error"].notna().sum()) for kind, frame in frames.items()}
    text = ", ".join(f"{n} of {len(frames[kind])} {kind}" for kind, n in failures.items() if n)
    return [f"Left out because they failed: {text}."] if text else []


def _effect_note(part: pd.DataFrame, answers: pd.DataFrame) -> list[str]:
    """A note on `evidence_effect`, as a list of one; [] if there is none."""
    effect = evidence_effect(part, answers)
    if effect is None:
        return []
    n_questions, points = effect
    return [
        f"On the {n_questions} questions where some samplers found the evidence and others did not, finding it changed "
        f"accuracy by {points.ours_text} points."
    ]


def evidence_effect(part: pd.DataFrame, answers: pd.DataFrame) -> tuple[int, Value] | None:
    """Return how accuracy changes with evidence in view within the same questions, and the number of these.

    None if evidence is in view of all samplers or of none, in every question.

    Args:
        part: selections of one K, as in `Run.selection_frame`.
        answers: answers without errors from these, as in `Run.answer_frame`.
    """
    fair = part[~part["sampler"].isin(["oracle", "blind"])]
    keys = ["benchmark", "question_id", "selection_id"]
    joined = answers[[*keys, "video", "score"]].merge(fair[[*keys, RECALL]], on=keys)
    joined["in_view"] = joined[RECALL] > 0
    scores = joined.groupby(["question_id", "in_view"])["score"].mean().unstack().dropna()
    if scores.empty:
        return None
    videos = joined.drop_duplicates("question_id").set_index("question_id")["video"].loc[scores.index].tolist()
    estimate = statistics.difference_estimate(scores[True] - scores[False], videos)
    return len(scores), Value.of(estimate, is_difference=True)


def paired_by_question(part: pd.DataFrame, a: str, b: str) -> tuple[QuestionMeans, QuestionMeans]:
    """Return recall of labels `a` and `b` (mean over seeds) on the questions that both have."""
    return paired(*(question_means(part[part["label"] == label], RECALL) for label in (a, b)))


def baseline_label(frame: pd.DataFrame, baseline: str) -> str:
    """Return the label of sampler `baseline` at its defaults.

    Raises:
        InvalidInput: the sampler did not run at its defaults, or ran in several versions.
    """
    if any(label.startswith(f"{baseline} #") for label in frame["label"]):
        raise InvalidInput(
            f"the folder holds rows of several versions of the baseline {baseline!r}; name another folder with --out"
        )
    labels = [label for label in set(frame["label"]) if label == baseline or label.startswith(f"{baseline} [")]
    if not labels:
        raise InvalidInput(f"the baseline {baseline!r} is none of {', '.join(sorted(set(frame['label'])))}")
    return str(min(labels))


def differences_by_length(frame: pd.DataFrame, baseline: str) -> Table:
    """Return paired differences of near recall to `baseline`, over all questions and by length."""
    base, names = baseline_label(frame, baseline), in_order(frame["bucket"])
    lines: list[tuple[tuple[str, ...], Cells]] = []
    for (benchmark, k), part in sampler_groups(frame, GROUP_KEYS):
        for label in sorted(set(part["label"]) - {base}, key=sampler_order):
            pair = paired_by_question(part, base, label)
            if not pair[0].keys:
                continue
            cells: Cells = {"all (points)": _compared(*pair)}
            for column in names:
                first, second = paired_by_question(part[part["bucket"] == column], base, label)
                if first.keys:
                    estimate = statistics.difference_estimate(second.values - first.values, first.videos)
                    cells[column] = Value.of(estimate, is_difference=True)
            lines.append(((benchmark, str(k), label), cells))
    return difference_table(
        lines,
        name="by_length",
        title=f"Evidence recall difference to {base} {WITHIN_NEAR}, by length",
        key_titles=("Benchmark", "K", "Sampler"),
        columns=("all (points)", "p (Holm)", *names),
        notes=(
            "Paired by question; 95 % interval: sign flips over videos. Columns after p are not tested.",
            TOO_FEW_NOTE,
        ),
    )


def _compared(a: QuestionMeans, b: QuestionMeans) -> statistics.PairedComparison:
    """The paired comparison of two series over the same questions: `b` minus `a`."""
    return statistics.compare_paired(a.values, b.values, a.videos)


def cost_values(part: pd.DataFrame) -> dict[str, Value]:
    """Return `COSTS` of `part` by title, in percent of the frames of the videos."""
    return {title: Value(ours=count(part), digits=2) for title, count in COSTS.items()}


def _equal_costs(part: pd.DataFrame, base: str, labels: Sequence[str]) -> list[str]:
    """A note, as a list of one, on the samplers that cost about as much as `base`, by each of `COSTS`."""
    parts = []
    for title, count in COSTS.items():
        costs = {label: count(part[part["label"] == label]) or 0.0 for label in labels}
        equal = [label for label in labels if label != base and abs(costs[label] - costs[base]) < EQUAL * costs[base]]
        parts.append(f"in {title.removesuffix(' (%)')} {', '.join(equal) or 'none'}")
    return [f"Cost within {100 * EQUAL:g} % of {base}: {'; '.join(parts)}."]


def at_any_size(frame: pd.DataFrame, part: pd.DataFrame) -> dict[str, Value | str]:
    """Return cells by column: near recall with small frames counted as whole, and pixels fed; {} if none is small."""
    if not has_sizes(frame):
        return {}
    recall = recall_figure(part, recall_column(NEAR_SECONDS, any_size=True))
    return {"any size (%)": recall, "pixels (frames)": f"{part['full_frames'].mean():.1f}"}


def sizes_note(frame: pd.DataFrame) -> list[str]:
    """Return a note on small frames, as a list of one; [] if all are shown at full size."""
    any_size = f"Any size, {WITHIN_NEAR}: a frame fed at a small scale counts as a whole one."
    note = f"{PIXELS_NOTE} {any_size} Pixels: the mean fed."
    return [note] if has_sizes(frame) else []
