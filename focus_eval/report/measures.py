"""The figures of a report: accuracy, evidence recall, costs and counts of some lines of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from focus_eval.core.types import WEAKEST_RHO, FloatArray
from focus_eval.report.cost import FORWARDS_NOTE
from focus_eval.report.run import Run, sampler_order
from focus_eval.report.statistics import mean_estimate, stratum_weights
from focus_eval.report.table import Counts, Table, TableRow, Value
from focus_eval.rows.records import BESIDE_STAGES, DECODED, HELD_STAGES

Key = tuple[str, str]


@dataclass(frozen=True)
class QuestionMeans:
    """One value per question, in the order of the rows.

    Args:
        keys: (benchmark, question id), shape `(n,)`.
        values: mean over the question's seeds, shape `(n,)`.
        videos: (benchmark, video): two benchmarks may use the same names.
        types: the question types that the benchmark's accuracy is the mean over, "" where it is not.
        seeds: the most seeds any of the questions has.
    """

    keys: tuple[Key, ...]
    values: FloatArray
    videos: tuple[Key, ...]
    types: tuple[str, ...]
    seeds: int

    @property
    def strata(self) -> tuple[str, ...] | None:
        """The type of each question; None where the mean is over questions, or there are several benchmarks."""
        return self.types if len({benchmark for benchmark, _ in self.keys}) == 1 and all(self.types) else None

    def taken(self, places: list[int]) -> QuestionMeans:
        """Return the questions at `places`, in that order."""
        return QuestionMeans(
            tuple(self.keys[i] for i in places),
            self.values[places],
            tuple(self.videos[i] for i in places),
            tuple(self.types[i] for i in places),
            self.seeds,
        )


def paired(a: QuestionMeans, b: QuestionMeans) -> tuple[QuestionMeans, QuestionMeans]:
    """Return the questions that both have, in the order of `a`."""
    place_b = {key: at for at, key in enumerate(b.keys)}
    shared = [at for at, key in enumerate(a.keys) if key in place_b]
    return a.taken(shared), b.taken([place_b[a.keys[at]] for at in shared])


def question_means(part: pd.DataFrame, column: str) -> QuestionMeans:
    """Return the mean of `column` per question of `part`; rows without a value are left out.

    Args:
        part: lines of one configuration, so that the rows of a question differ in their seed alone.
    """
    part = part[part[column].notna()]
    types = part["type"] if "type" in part else [""] * len(part)
    sums: dict[Key, float] = {}
    counts: dict[Key, int] = {}
    about: dict[Key, tuple[Key, str]] = {}
    columns = (part["benchmark"], part["question_id"], part["video"], types, part[column])
    for benchmark, question_id, video, kind, value in zip(*columns, strict=True):
        key = (benchmark, question_id)
        sums[key] = sums.get(key, 0.0) + float(value)
        counts[key] = counts.get(key, 0) + 1
        about.setdefault(key, ((benchmark, video), kind))
    return QuestionMeans(
        tuple(sums),
        np.array([sums[key] / counts[key] for key in sums], dtype=np.float64),
        tuple(video for video, _ in about.values()),
        tuple(kind for _, kind in about.values()),
        max(counts.values(), default=0),
    )


NOT_SCORED = "not scored here"


def accuracy_figure(part: pd.DataFrame, *, published: float | None = None, over_types: bool = False) -> Value:
    """Return accuracy in percent over the answered questions of `part`, whose rows may come from several seeds.

    A question asked under several seeds counts once, with its mean score.

    Args:
        over_types: the mean over task types; no figure where the benchmark is not reported so, or several are there.
    """
    answered = part[part["is_answered"]]
    if len(answered) and answered["score"].isna().all():
        return Value(published=published, text="" if over_types else NOT_SCORED)
    questions = question_means(answered, "score")
    strata = questions.strata if over_types else None
    if not questions.keys or (over_types and strata is None):
        return Value(published=published)
    estimate = mean_estimate(questions.values, questions.videos, strata=strata)
    per_seed = [question_means(rows, "score") for _, rows in answered.groupby("seed")] if "seed" in answered else []
    means = [100 * _mean(scores, scores.strata if over_types else None) for scores in per_seed if scores.keys]
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else None
    return replace(Value.of(estimate), published=published, spread=spread, seeds=max(1, len(means)))


def reported_figure(part: pd.DataFrame) -> Value:
    """Return the accuracy that the benchmark of `part` reports: the mean over questions, or over task types."""
    over_types = accuracy_figure(part, over_types=True)
    return accuracy_figure(part) if over_types.ours is None else over_types


def recall_figure(chosen: pd.DataFrame, metric: str) -> Value:
    """Return evidence recall in percent, `metric` from `recall_column`, over the questions of `chosen`."""
    questions = question_means(chosen, metric)
    return Value.of(mean_estimate(questions.values, questions.videos)) if questions.keys else Value()


def has_sizes(chosen: pd.DataFrame) -> bool:
    """Whether any of `chosen` shows frames at less than full size."""
    return not chosen.empty and bool((chosen["full_frames"] < chosen["n_keyframes"]).any())


def frames_scored_percent(chosen: pd.DataFrame) -> float | None:
    """Return frames scored over frames of the videos in percent, summed over questions and seeds; None if unknown."""
    total = chosen["n_frames"].sum()
    return float(100 * chosen["n_pulls"].sum() / total) if total and chosen["has_cost"].all() else None


def forwards_percent(chosen: pd.DataFrame) -> float | None:
    """Return forward equivalents over frames of the videos in percent; None where a row does not say enough."""
    total, spent = chosen["n_frames"].sum(), chosen["forward_equivalents"]
    return float(100 * spent.sum() / total) if total and spent.notna().all() else None


FORWARDS, FRAMES_SCORED = "forward equivalents (%)", "frames scored (%)"
# What claims are made on, and the paper's own count beside it, by the title of its column or axis.
COSTS = {FORWARDS: forwards_percent, FRAMES_SCORED: frames_scored_percent}


def per_question(chosen: pd.DataFrame, column: str) -> float | None:
    """Return the mean of `column` over the questions and seeds that did not fail; None where a row does not say."""
    known = chosen.loc[chosen["error"].isna(), column]
    return float(known.mean()) if len(known) and known.notna().all() else None


# Fewer pulls than these tell a correlation of .3 from 0 too seldom for a warning.
LEAST_RHO_PULLS = 200


def scan_correlations(frame: pd.DataFrame) -> dict[str, float]:
    """Return how far each scan encoder agrees with the main one.

    The correlation is measured at the pulls of each question; the mean over questions is weighted by pulls.
    """
    if "scan_rho" not in frame:
        return {}
    known = frame.dropna(subset=["scan_rho"])
    return {
        str(name): float(np.average(part["scan_rho"].astype(float), weights=part["n_pulls"]))
        for name, part in known.groupby("scan_encoder", sort=False)
    }


def scan_notes(frame: pd.DataFrame) -> list[str]:
    """Return how far each scan encoder agrees with the main one, and a warning where it tells nothing."""
    rhos = scan_correlations(frame)
    if not rhos:
        return []
    said = ", ".join(f"{name} {rho:.2f}" for name, rho in rhos.items())
    notes = [f"Correlation of scan and main encoder, measured at the pulls: {said}."]
    pulls = frame.groupby("scan_encoder")["n_pulls"].sum()
    weak = ", ".join(name for name, rho in rhos.items() if rho < WEAKEST_RHO and pulls[name] >= LEAST_RHO_PULLS)
    if weak:
        notes.append(
            f"Warning: below {WEAKEST_RHO:g} a scan tells nothing of where to look; for {weak} take a better encoder, "
            "or even_cover."
        )
    return notes


def llm_notes(frame: pd.DataFrame) -> list[str]:
    """Return what each sampler's model was asked in all, and whether that is in the forward equivalents."""
    notes: list[str] = []
    if frame.empty:
        return notes
    for (label, model), part in frame[frame["llm_calls"] > 0].groupby(["label", "llm"], sort=False):
        calls, images = int(part["llm_calls"].sum()), int(part["llm_images"].sum())
        tokens = part["llm_input"] + part["llm_output"]
        said = f"{label} asked {model} {calls:,} times about {images:,} pictures"
        said += f", {int(tokens.sum()):,} tokens" if tokens.notna().all() else ", tokens not known"
        said += f", {part['llm_dollars'].sum():.2f} dollars" if part["llm_dollars"].notna().any() else ""
        where = "in" if part["forward_equivalents"].notna().all() else "not in"
        notes.append(f"{said} in {len(part):,} questions; {where} the forward equivalents.")
    paid = frame[(frame["llm_calls"] == 0) & (frame["llm_dollars"] > 0)]
    for (label, encoder), part in paid.groupby(["label", "encoder"], sort=False):
        notes.append(f"{label}: the encoder {encoder} was paid {part['llm_dollars'].sum():.2f} dollars.")
    if frame["n_looked"].any():
        notes.append(f"Samplers looked at {int(frame['n_looked'].sum()):,} pictures themselves: decoded, not encoded.")
    return notes


def hours_per_seed(chosen: pd.DataFrame) -> float | None:
    """Return the hours that one seed's selections would have held a device for had no other selection been there.

    The mean over seeds; see `cost.charged_seconds`. None if unknown, or never measured.
    """
    seconds = chosen["charged_seconds"]
    if not chosen["has_cost"].all() or seconds.isna().any():
        return None
    return float(seconds.sum() / 3600 / chosen["seed"].nunique())


def runs_on_gpu(chosen: pd.DataFrame) -> bool:
    """Whether all selections that pulled anything ran on a GPU: only then may hours be compared with the paper's."""
    devices = chosen.loc[chosen["n_pulls"] > 0, "select_device"]
    return bool(len(devices)) and all(str(device).startswith("cuda") for device in devices.unique())


def counts_of(run: Run, part: pd.DataFrame) -> Counts:
    """Return what the figures over `part` (lines of answers, or of selections where no model answered) rest on.

    Questions are counted once whatever their seeds; the other counts are of (question, seed) pairs.
    """
    expected = [run.facts_of(name).questions for name in part["benchmark"].unique()]
    is_error = part["error"].notna()
    answered = "is_answered" in part
    below = part["is_below_k"] if answered else (~is_error & (part["n_keyframes"] < part["k"]))
    return Counts(
        questions=_distinct_questions(part[~is_error]),
        asked=_distinct_questions(part),
        expected=sum(number for number in expected if number) if all(expected) else None,
        unparsed=int(part["is_unparsed"].sum()) if answered else 0,
        errors=int(is_error.sum()),
        fallbacks=int(part["fallback"].notna().sum()) if answered else 0,
        below_k=int(below.sum()),
    )


def selections_of(run: Run, part: pd.DataFrame) -> pd.DataFrame:
    """Return the selections behind lines of answers, each once whichever models were shown it."""
    frame = run.selection_frame
    if frame.empty:
        return frame
    keys = ["benchmark", "question_id", "selection_id"]
    wanted = part[keys].drop_duplicates()
    return frame.merge(wanted, on=keys)


def _mean(questions: QuestionMeans, strata: Sequence[str] | None) -> float:
    weights = stratum_weights(strata) if strata else None
    return float(np.average(questions.values, weights=weights))


def _distinct_questions(part: pd.DataFrame) -> int:
    return len(part[["benchmark", "question_id"]].drop_duplicates())


# The figures of a question, by the column of `Run.selection_frame`; the last ones stand where any frame was.
_PER_QUESTION = {
    "n_pulls": "Frames scored",
    "n_encoded": "Frames encoded",
    "forward_equivalents": "Forward equivalents",
    "n_scanned_encoded": "Frames scanned",
    **{f"decoded_{mode}": f"Decoded, {mode}" for mode in DECODED},
}
_WHERE_ANY = ("n_scanned_encoded", "decoded_reference", "decoded_sync")


def cost_tables(run: Run) -> list[Table]:
    """Return what choosing costs, per question and in hours by stage; none for a run without selections."""
    frame = run.selection_frame
    frame = frame if frame.empty else frame[frame["has_cost"]]
    return [] if frame.empty else [_per_question_table(frame), _hours_table(frame)]


def _per_question_table(frame: pd.DataFrame) -> Table:
    columns = {name: title for name, title in _PER_QUESTION.items() if name not in _WHERE_ANY or frame[name].any()}
    rows = [
        TableRow(tuple(map(str, keys)), tuple(Value(ours=per_question(part, name), digits=1) for name in columns))
        for keys, part in sorted(frame.groupby(["benchmark", "label", "k"]), key=_order)
    ]
    notes = (
        "Per question and seed. Frames encoded: a frame that several questions of a video ask for counts once, shared "
        "out among them.",
        *forwards_notes(frame),
        "Decoded: frames that the decoder gave out for the line's forwards, those passed through included; frames "
        "whose embeddings were there already are not decoded.",
    )
    return Table(
        name="cost_per_question",
        title="What choosing costs, per question",
        key_titles=("Benchmark", "Sampler", "K"),
        columns=tuple(columns.values()),
        rows=tuple(rows),
        notes=notes,
    )


def forwards_notes(frame: pd.DataFrame) -> list[str]:
    """Return what to know of the forward equivalents of `frame`."""
    scored = frame[frame["n_pulls"] > 0]
    silent = sorted(set(scored.loc[~scored["states_cost"], "encoder"]) - {""})
    notes = [FORWARDS_NOTE]
    if silent:
        notes.append(f"{', '.join(silent)}: what matching frames with text costs is not recorded, and not counted.")
    if scored["encoder"].nunique() > 1:
        notes.append("Each line counts in forwards of its own encoder: those of several encoders are not one unit.")
    return notes


def _hours_table(frame: pd.DataFrame) -> Table:
    held = [stage for stage in HELD_STAGES if stage not in ("scan", "ask") or frame[f"seconds_{stage}"].any()]
    rows = []
    for keys, part in sorted(frame.groupby(["benchmark", "label", "k"]), key=_order):
        seeds = part["seed"].nunique()
        spent = [float(part[f"seconds_{stage}"].sum()) / 3600 / seeds for stage in (*held, *BESIDE_STAGES)]
        figures: list[Value | str] = [Value(ours=hours, digits=4) for hours in [sum(spent[: len(held)]), *spent]]
        pulls, forwards = part["n_pulls"].sum() / seeds, (part["forwards"] + part["scan_forwards"]).sum() / seeds
        rows.append(TableRow(tuple(map(str, keys)), (f"{pulls:,.0f}", f"{forwards:,.0f}", *figures)))
    devices = ", ".join(sorted(set(frame["select_device"]) - {""})) or "not recorded"
    return Table(
        name="cost",
        title="Where the hours of choosing went",
        key_titles=("Benchmark", "Sampler", "K"),
        columns=("Frames scored", "Forwards made", "All", *(stage.capitalize() for stage in (*held, *BESIDE_STAGES))),
        rows=tuple(rows),
        notes=(
            f"As measured, whoever gained from it. Device: {devices}. All: hours of wall clock that it was held, per "
            "seed, shared out among the lines served at once. Decode and preprocess run beside the rest, in other "
            "threads, and are not in it.",
            "Frames scored: every frame scored for every question, as the paper counts. Forwards made: those really "
            "run, for embeddings are shared by the questions of a video and kept between runs.",
        ),
    )


def _order(group: tuple[Any, Any]) -> tuple[Any, ...]:
    benchmark, label, k = group[0]
    return (benchmark, *sampler_order(label), k)
