"""Tables and figures of evidence recall and cost, for simulations, the demo and `compare-samplers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import NEAR_SECONDS, RECALL_SECONDS, in_order
from focus_eval.bench.report import statistics
from focus_eval.bench.report.figures import (
    FAINT,
    MOST_NAMES,
    PAGE_INCHES,
    Style,
    add_shared_legend,
    figure_style,
    log_if_wide,
    name_marks,
    new_figure,
    save_figure,
    styles_of,
)
from focus_eval.bench.report.measures import (
    COSTS,
    FORWARDS,
    FRAMES_SCORED,
    QuestionMeans,
    forwards_notes,
    has_sizes,
    llm_notes,
    paired,
    question_means,
    recall_figure,
    scan_notes,
)
from focus_eval.bench.report.recall import PIXELS_NOTE, recall_column
from focus_eval.bench.report.run import Run, role_mark, sampler_groups, sampler_order, unique_labels
from focus_eval.bench.report.table import TOO_FEW_NOTE, Cells, Table, Value, difference_table
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.rows.records import SelectionRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# "Near recall" below: within `NEAR_SECONDS`.
RECALL = recall_column(NEAR_SECONDS)
WITHIN_NEAR = f"within {NEAR_SECONDS:g} s"
_KEYS = ["benchmark", "k"]
# Costs no further apart than this share count as equal.
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
    """Return the label of a selection: sampler, scan encoder, changed options and a mark of its role."""
    short = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in row.changed_options.items()}
    scan = [f"({row.scan_encoder})"] if row.scan_encoder else []
    return " ".join([row.sampler, *scan, *(f"{name}={value}" for name, value in short.items())]) + role_mark(row)


def recall_overview(frame: pd.DataFrame) -> Table:
    """Return evidence recall within each distance, frames scored and milliseconds of every sampler and K."""
    titles = [f"within {RECALL_SECONDS[0]:g} s (%)", *(f"{seconds:g} s" for seconds in RECALL_SECONDS[1:])]
    lines: list[tuple[tuple[str, ...], Mapping[str, Value | str]]] = []
    for (benchmark, k, label), part in sampler_groups(frame, [*_KEYS, "label"]):
        successful = part[part["error"].isna()]
        recalls = [recall_figure(successful, recall_column(seconds)) for seconds in RECALL_SECONDS]
        cells = {
            **_costs(successful),
            **dict(zip(titles, recalls, strict=True)),
            "near frames": Value(ours=float(successful["near_frames"].astype(float).mean()), digits=2),
            **_at_any_size(frame, successful),
            "ms": Value(ours=1000 * float(successful["select_seconds"].mean()), digits=1),
            "questions": str(len(successful)),
            "errors": str(int(part["error"].notna().sum()) or ""),
        }
        lines.append(((benchmark, str(k), label), cells))
    return Table.of(
        lines,
        name="recall",
        title="Evidence recall",
        key_titles=("Benchmark", "K", "Sampler"),
        notes=(
            "Recall: share of a question's evidence moments with a keyframe that near, then the mean over questions, "
            "with a 95 % interval (t on the logit scale, clustered by video).",
            "Near frames: log(1 + keyframes within 5 s), mean over a question's moments, then over questions.",
            "Frames scored: pulls over frames, summed over questions. ms: time of choosing, without any encoder.",
            *_sizes_note(frame),
            *forwards_notes(frame),
            *scan_notes(frame),
            *llm_notes(frame),
        ),
    )


def _at_any_size(frame: pd.DataFrame, part: pd.DataFrame) -> dict[str, Value | str]:
    """Return cells by column: near recall with small frames counted as whole, and pixels fed; {} if none is small."""
    if not has_sizes(frame):
        return {}
    recall = recall_figure(part, recall_column(NEAR_SECONDS, any_size=True))
    return {"any size (%)": recall, "pixels (frames)": f"{part['full_frames'].mean():.1f}"}


def _sizes_note(frame: pd.DataFrame) -> list[str]:
    """Return a note on small frames, as a list of one; [] if all are shown at full size."""
    any_size = f"Any size, {WITHIN_NEAR}: a frame fed at a small scale counts as a whole one."
    note = f"{PIXELS_NOTE} {any_size} Pixels: the mean fed."
    return [note] if has_sizes(frame) else []


def off_grid_lines(run: Run) -> list[str]:
    """Return a sentence on the pulls, and one on the scans, that fell between recorded frames; [] if none did."""
    lines = []
    for kind, fact, count_field in (
        ("Pulls", "pulls_off_grid", "n_scored"),
        ("Scans", "scans_off_grid", "frames_scanned"),
    ):
        off, of = Counter[str](), Counter[str]()
        for row in run.selections:
            off[row.sampler] += int(row.facts.get(fact, 0))
            of[row.sampler] += getattr(row, count_field)
        texts = ", ".join(f"{name} {n:,} of {of[name]:,}" for name, n in sorted(off.items()) if n)
        lines += [f"{kind} between recorded frames, which took the relevance of the nearest: {texts}."] if texts else []
    return lines


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
        lines.append(((benchmark, label), {**_costs(part[part["k"] == part["k"].max()]), **figures}))
    return Table.of(
        lines,
        name="recall_by_k",
        title=f"Evidence recall {WITHIN_NEAR} (%)",
        key_titles=("Benchmark", "Sampler"),
        notes=("A dash: the sampler did not run at that K.", *forwards_notes(frame), *_failed_note(frame)),
    )


def _lead_table(run: Run, frame: pd.DataFrame, k: int, baseline: str) -> Table:
    """Return the demo's first table: accuracy, recall and cost of every sampler at one K, against `baseline`."""
    part, answers = frame[frame["k"] == k], run.answer_frame
    failed = _failed_note(part, answers[answers["k"] == k])
    answers = answers[(answers["k"] == k) & answers["error"].isna()]
    solvable = _answered_by_ceiling(answers)
    base, labels = baseline_label(part, baseline), sorted(set(part["label"]), key=sampler_order)
    lines = []
    for label in labels:
        selections = part[part["label"] == label]
        scores = answers[answers["selection_id"].isin(set(selections["selection_id"]))]
        answerable_scores = scores[scores["question_id"].isin(solvable)]
        cells: Cells = {
            f"recall {WITHIN_NEAR} (%)": recall_figure(selections, RECALL),
            **_costs(selections),
            **_at_any_size(part, selections),
            "accuracy (%)": recall_figure(scores, "score"),
            "answerable only (%)": recall_figure(answerable_scores, "score"),
        }
        if label != base:
            cells[f"minus {base}"] = _compared(*paired_by_question(part, base, label))
        lines.append(((label,), cells))
    n_questions, any_size = answers["question_id"].nunique(), _at_any_size(part, part)
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
            *_sizes_note(part),
            *failed,
        ),
    )


def _failed_note(part: pd.DataFrame, answers: pd.DataFrame | None = None) -> list[str]:
    """Return a note with the numbers of failed selections and answers, as a list of one; [] if none failed."""
    counts = {"selections": part, **({} if answers is None else {"answers": answers})}
    failures = {kind: int(rows["error"].notna().sum()) for kind, rows in counts.items()}
    text = ", ".join(f"{n} of {len(counts[kind])} {kind}" for kind, n in failures.items() if n)
    return [f"Left out because they failed: {text}."] if text else []


def _answered_by_ceiling(answers: pd.DataFrame) -> set[str]:
    """Return ids of the questions that the oracle's frames let the model answer correctly.

    All answered without oracle.
    """
    ceiling = answers[answers["sampler"] == "oracle"]
    right = ceiling[ceiling["score"] >= 0.5] if len(ceiling) else answers
    return set(right["question_id"])


def _effect_note(part: pd.DataFrame, answers: pd.DataFrame) -> list[str]:
    """Return a note on how accuracy changes with evidence in view within the same questions; [] if none vary."""
    fair = part[~part["sampler"].isin(["oracle", "blind"])]
    keys = ["benchmark", "question_id", "selection_id"]
    joined = answers[[*keys, "video", "score"]].merge(fair[[*keys, RECALL]], on=keys)
    joined["in_view"] = joined[RECALL] > 0
    scores = joined.groupby(["question_id", "in_view"])["score"].mean().unstack().dropna()
    if scores.empty:
        return []
    videos = joined.drop_duplicates("question_id").set_index("question_id")["video"].loc[scores.index].tolist()
    effect = Value.of(
        statistics.difference_estimate(scores[True] - scores[False], videos), is_difference=True
    ).ours_text
    return [
        f"On the {len(scores)} questions where some samplers found the evidence and others did not, finding it changed "
        f"accuracy by {effect} points."
    ]


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
    for (benchmark, k), part in sampler_groups(frame, _KEYS):
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
    """Return the paired comparison of two series over the same questions: `b` minus `a`."""
    return statistics.compare_paired(a.values, b.values, a.videos)


def _costs(part: pd.DataFrame) -> dict[str, Value]:
    """Return `COSTS` of `part` by title, in percent of the frames of the videos."""
    return {title: Value(ours=count(part), digits=2) for title, count in COSTS.items()}


def _equal_costs(part: pd.DataFrame, base: str, labels: Sequence[str]) -> list[str]:
    """Return a note, as a list of one, on the samplers that cost about as much as `base`, by each of `COSTS`."""
    parts = []
    for title, count in COSTS.items():
        costs = {label: count(part[part["label"] == label]) or 0.0 for label in labels}
        equal = [label for label in labels if label != base and abs(costs[label] - costs[base]) < EQUAL * costs[base]]
        parts.append(f"in {title.removesuffix(' (%)')} {', '.join(equal) or 'none'}")
    return [f"Cost within {100 * EQUAL:g} % of {base}: {'; '.join(parts)}."]


def save_frontiers(frame: pd.DataFrame, folder: Path, *, replayed: pd.DataFrame | None = None) -> list[Path]:
    """Draw recall against forward equivalents and against frames scored; return the written files."""
    written = []
    for name, cost in (("frontier", FORWARDS), ("frontier_pulls", FRAMES_SCORED)):
        written += save_figure(draw_frontier(frame, replayed=replayed, cost=cost), folder / f"{name}.pdf")
    return written


def draw_frontier(frame: pd.DataFrame, *, replayed: pd.DataFrame | None = None, cost: str = FORWARDS) -> Figure:
    """Return near recall against a cost, one panel per K, one line per sampler over its budgets.

    In one or two panels up to `MOST_NAMES` samplers have their names at the lines' ends, else there is a legend.

    Args:
        frame: `Run.selection_frame`; several benchmarks are pooled.
        cost: one of `COSTS`; a sampler of unknown cost is not drawn.
        replayed: the same samplers at several budgets on stored relevance, drawn as lines with hollow marks; `frame`
            then gives filled marks alone.
    """
    ks = sorted(set(frame["k"]))
    samplers = set(frame["sampler"]) | (set() if replayed is None else set(replayed["sampler"]))
    styles = styles_of(sorted(samplers))
    with figure_style():
        figure, panels = _panels(len(ks))
        for axes, k in zip(panels, ks, strict=True):
            costs = []
            if replayed is not None:
                costs += _draw_budgets(axes, replayed[replayed["k"] == k], styles, cost, hollow=True)
            costs += _draw_budgets(axes, frame[frame["k"] == k], styles, cost, lw=1 if replayed is None else 0)
            axes.set(xlabel=cost.capitalize(), title=f"K = {k}")
            log_if_wide(axes, costs)
        panels[0].set_ylabel(f"Evidence recall {WITHIN_NEAR} (%)")
        if replayed is not None:
            panels[0].plot([], [], color=FAINT, marker="o", mfc="none", ms=3, lw=1, label="replayed at other budgets")
        if replayed is None and len(panels) <= 2 and len(samplers) <= MOST_NAMES:
            for axes in panels:
                lines = [(str(line.get_label()), np.asarray(line.get_xydata())) for line in axes.lines]
                name_marks(axes, [(name, float(points[-1, 0]), float(points[-1, 1])) for name, points in lines])
        else:
            add_shared_legend(figure)
        return figure


def _draw_budgets(
    axes: Axes, part: pd.DataFrame, styles: Mapping[str, Style], cost: str, *, lw: float = 1, hollow: bool = False
) -> list[float]:
    """Draw recall over cost of each sampler in `part`; return the costs in percent."""
    costs: list[float] = []
    for sampler, rows in part[part["error"].isna()].groupby("sampler"):
        budgets = [(COSTS[cost](line), 100 * line[RECALL].mean()) for _, line in rows.groupby("label")]
        points = sorted((spent, recall) for spent, recall in budgets if spent is not None)
        if not points:
            continue
        spent, recall = np.array(points).T
        costs += spent.tolist()
        style = styles[str(sampler)]
        # Hollow marks stay out of the legend: the filled one of the same sampler names both.
        drawn = {**style.hollow, "ms": 3} if hollow else {**style.filled, "ms": 4, "label": str(sampler)}
        axes.plot(spent, recall, **drawn, lw=lw)
    return costs


def _panels(n: int) -> tuple[Figure, list[Axes]]:
    """Return a figure and its `n` panels side by side, with one vertical axis."""
    figure = new_figure(PAGE_INCHES, 3.0)
    return figure, list(figure.subplots(1, n, sharey=True, squeeze=False)[0])
