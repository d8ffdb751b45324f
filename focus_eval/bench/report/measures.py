"""The figures of a report: accuracy, evidence recall, costs and counts of some lines of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.group_scores import score_groups
from focus_eval.bench.report.cost import FORWARDS_NOTE
from focus_eval.bench.report.rendering import Counts, Table, Value
from focus_eval.bench.report.run import Run, sampler_groups
from focus_eval.bench.report.statistics import mean_estimate, stratum_weights
from focus_eval.core.types import FloatArray
from focus_eval.keyframes.rows.identity import is_unnamed_video
from focus_eval.keyframes.rows.records import BLOCKING_STAGES, CONCURRENT_STAGES, DECODE_MODES
from focus_eval.keyframes.samplers.scan_cover import WEAKEST_RHO
from focus_eval.keyframes.subtitles.prompts import NO_SUBTITLES, OTHER_FRAMES

Key = tuple[str, str]


@dataclass(frozen=True)
class QuestionMeans:
    """One value per question, in the order of the rows.

    Args:
        keys: (benchmark, question id), shape `(n,)`.
        values: mean over the question's seeds, shape `(n,)`.
        videos: (benchmark, video) of each question; two benchmarks may use the same video names.
        types: task type of each question, if the benchmark reports the mean over task types; else "".
    """

    keys: tuple[Key, ...]
    values: FloatArray
    videos: tuple[Key, ...]
    types: tuple[str, ...]

    @property
    def strata(self) -> tuple[str, ...] | None:
        """The type of each question; None if the mean is over questions, or there are several benchmarks."""
        return self.types if len({benchmark for benchmark, _ in self.keys}) == 1 and all(self.types) else None

    def taken(self, places: list[int]) -> QuestionMeans:
        """Return the questions at `places`, in that order."""
        return QuestionMeans(
            tuple(self.keys[i] for i in places),
            self.values[places],
            tuple(self.videos[i] for i in places),
            tuple(self.types[i] for i in places),
        )


def paired(a: QuestionMeans, b: QuestionMeans) -> tuple[QuestionMeans, QuestionMeans]:
    """Return `a` and `b`, each cut to their shared questions in the order of `a`."""
    place_b = {key: at for at, key in enumerate(b.keys)}
    shared = [at for at, key in enumerate(a.keys) if key in place_b]
    return a.taken(shared), b.taken([place_b[a.keys[at]] for at in shared])


def question_means(part: pd.DataFrame, column: str) -> QuestionMeans:
    """Return the mean of `column` per question of `part`; rows without a value are left out.

    Args:
        part: lines of one configuration: the rows of a question differ only in their seed.
    """
    part = part[part[column].notna()]
    keys, videos = (list(zip(part["benchmark"], part[name], strict=True)) for name in ("question_id", "video"))
    types = part["type"].tolist() if "type" in part else [""] * len(part)
    place_of_key = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    places = np.array([place_of_key[key] for key in keys], dtype=np.intp)
    counts = np.bincount(places)
    sums = np.bincount(places, weights=part[column].to_numpy(dtype=np.float64))
    first_rows = np.unique(places, return_index=True)[1].tolist()
    return QuestionMeans(
        tuple(place_of_key),
        np.asarray(sums / counts, dtype=np.float64),
        tuple(videos[row] for row in first_rows),
        tuple(types[row] for row in first_rows),
    )


def unnamed_video_notes(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return a note for each benchmark of `frame` that has questions without a video name."""
    if frame.empty:
        return ()
    is_unnamed = frame["video"].map(is_unnamed_video).astype(bool)
    return tuple(
        f"{benchmark}: no video is named, so intervals and tests are by question, not by video."
        for benchmark in dict.fromkeys(frame["benchmark"][is_unnamed])
    )


NOT_SCORED = "not scored here"


def accuracy_figure(part: pd.DataFrame, *, published: float | None = None, over_types: bool = False) -> Value:
    """Return accuracy in percent over the answered questions of `part`, whose rows may come from several seeds.

    A question asked under several seeds counts once, with its mean score.

    Args:
        published: the published accuracy in percent, kept beside ours.
        over_types: take the mean over task types. The value is empty if the benchmark does not report this mean, or if
            `part` has several benchmarks.
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
    seed_means = []
    for scores in per_seed:
        if scores.keys:
            weights = stratum_weights(scores.strata) if over_types and scores.strata else None
            seed_means.append(100 * float(np.average(scores.values, weights=weights)))
    spread = float(np.std(seed_means, ddof=1)) if len(seed_means) > 1 else None
    return replace(Value.of(estimate), published=published, spread=spread, seeds=max(1, len(seed_means)))


def reported_figure(part: pd.DataFrame) -> Value:
    """Return the accuracy that the benchmark of `part` reports: the mean over questions, or over task types."""
    over_types = accuracy_figure(part, over_types=True)
    return accuracy_figure(part) if over_types.ours is None else over_types


def recall_figure(selections: pd.DataFrame, metric: str) -> Value:
    """Return the mean evidence recall over the questions of `selections`, in percent.

    Args:
        metric: name of the recall column, as `recall_column` returns it.
    """
    questions = question_means(selections, metric)
    return Value.of(mean_estimate(questions.values, questions.videos)) if questions.keys else Value()


def has_sizes(selections: pd.DataFrame) -> bool:
    """Return True if any of `selections` shows some of its frames smaller than full size."""
    return not selections.empty and bool((selections["full_frames"] < selections["n_keyframes"]).any())


def frames_scored_percent(selections: pd.DataFrame) -> float | None:
    """Return frames scored over frames of the videos in percent, summed over questions and seeds; None if unknown."""
    total = selections["n_frames"].sum()
    if (selections["n_frames"].isna() & (selections["n_pulls"] > 0)).any():
        return None  # the length of a video is unknown
    return float(100 * selections["n_pulls"].sum() / total) if total and selections["has_cost"].all() else None


def forwards_percent(selections: pd.DataFrame) -> float | None:
    """Return forward equivalents over frames of the videos in percent; None if the cost of a row is not known."""
    total, spent = selections["n_frames"].sum(), selections["forward_equivalents"]
    return float(100 * spent.sum() / total) if total and spent.notna().all() else None


FORWARDS, FRAMES_SCORED = "forward equivalents (%)", "frames scored (%)"
# Title of a column or axis -> function that returns the cost. Claims rest on the first; the paper counts the second.
COSTS = {FORWARDS: forwards_percent, FRAMES_SCORED: frames_scored_percent}


def per_question(selections: pd.DataFrame, column: str) -> float | None:
    """Return the mean of `column` over the questions and seeds that did not fail; None if a value is missing."""
    values = selections.loc[selections["error"].isna(), column]
    return float(values.mean()) if len(values) and values.notna().all() else None


# Least number of pulls for a warning: with fewer, a correlation of 0.3 cannot be told from 0.
MIN_PULLS_FOR_WARNING = 200


def scan_correlations(frame: pd.DataFrame) -> dict[str, float]:
    """Return the correlation of each scan encoder with the main one, by name of the scan encoder.

    Correlations are measured at the pulls of each question and averaged over questions, weighted by pulls.
    """
    if "scan_rho" not in frame:
        return {}
    measured = frame.dropna(subset=["scan_rho"])
    return {
        str(name): float(np.average(part["scan_rho"].astype(float), weights=part["n_pulls"]))
        for name, part in measured.groupby("scan_encoder", sort=False)
    }


def scan_notes(frame: pd.DataFrame) -> list[str]:
    """Return a note on the correlation of each scan encoder with the main one, and a warning if it is too low."""
    rhos = scan_correlations(frame)
    if not rhos:
        return []
    correlations = ", ".join(f"{name} {rho:.2f}" for name, rho in rhos.items())
    notes = [f"Correlation of scan and main encoder, measured at the pulls: {correlations}."]
    pulls = frame.groupby("scan_encoder")["n_pulls"].sum()
    weak = ", ".join(name for name, rho in rhos.items() if rho < WEAKEST_RHO and pulls[name] >= MIN_PULLS_FOR_WARNING)
    if weak:
        notes.append(
            f"Warning: below {WEAKEST_RHO:g} a scan does not find the relevant parts; for {weak} use a better encoder, "
            "or even_cover."
        )
    return notes


def llm_notes(frame: pd.DataFrame) -> list[str]:
    """Return notes on samplers' calls of language models, on paid encoders, and on pictures that samplers read."""
    notes: list[str] = []
    if frame.empty:
        return notes
    for (label, model), part in frame[frame["llm_calls"] > 0].groupby(["label", "llm"], sort=False):
        calls, images = int(part["llm_calls"].sum()), int(part["llm_images"].sum())
        tokens = part["llm_input"] + part["llm_output"]
        usage = f"{label} asked {model} {calls:,} times about {images:,} pictures"
        usage += f", {int(tokens.sum()):,} tokens" if tokens.notna().all() else ", tokens not known"
        usage += f", {part['llm_dollars'].sum():.2f} dollars" if part["llm_dollars"].notna().any() else ""
        inclusion = "in" if part["forward_equivalents"].notna().all() else "not in"
        notes.append(f"{usage} in {len(part):,} questions; {inclusion} the forward equivalents.")
    paid = frame[(frame["llm_calls"] == 0) & (frame["llm_dollars"] > 0)]
    for (label, encoder), part in paid.groupby(["label", "encoder"], sort=False):
        notes.append(f"{label}: the encoder {encoder} was paid {part['llm_dollars'].sum():.2f} dollars.")
    if frame["n_looked"].any():
        notes.append(f"Samplers read {int(frame['n_looked'].sum()):,} pictures themselves: decoded, not encoded.")
    return notes


def hours_per_seed(selections: pd.DataFrame) -> float | None:
    """Return the device-hours that one seed's selections take alone, as the mean over seeds; see
    `cost.charged_seconds`.

    None if the cost or time of a row is not known.
    """
    seconds = selections["charged_seconds"]
    if not selections["has_cost"].all() or seconds.isna().any():
        return None
    return float(seconds.sum() / 3600 / selections["seed"].nunique())


def runs_on_gpu(selections: pd.DataFrame) -> bool:
    """Return True if all selections that scored frames ran on a GPU, so that hours compare with the paper's."""
    devices = selections.loc[selections["n_pulls"] > 0, "select_device"]
    return bool(len(devices)) and all(str(device).startswith("cuda") for device in devices.unique())


def counts_of(run: Run, part: pd.DataFrame) -> Counts:
    """Return the counts behind figures over `part`: lines of answers, or of selections if no model answered.

    A question counts once for all its seeds; all further counts are of (question, seed) pairs.
    """
    expected = [
        run.facts_of(str(name)).n_questions(run.tasks_of(of_name.get("cell", ())))
        for name, of_name in part.groupby("benchmark", sort=False)
    ]
    is_error = part["error"].notna()
    answered = "is_answered" in part
    is_below_k = part["is_below_k"] if answered else (~is_error & (part["n_keyframes"] < part["k"]))
    return Counts(
        benchmarks=", ".join(part["benchmark"].unique()),
        questions=_distinct_questions(part[~is_error]),
        attempted=_distinct_questions(part),
        expected=sum(number for number in expected if number) if all(expected) else None,
        unparsed=int(part["is_unparsed"].sum()) if answered else 0,
        errors=int(is_error.sum()),
        fallbacks=int(part["fallback"].notna().sum()) if answered else 0,
        below_k=int(is_below_k.sum()),
    )


# Value of `subtitles` in a cell's identity -> text for a note.
_SUBTITLE_TEXTS = {
    "off": "without the subtitles that the task itself would write",
    "shown": "with subtitles of the shown frames",
    "all": "with all subtitles of the video",
}


def subtitle_notes(run: Run) -> list[str]:
    """Return a sentence for each model and benchmark whose prompts have subtitles, or lack those of the task."""
    notes = []
    for benchmark, _, _, cell, model in run.cells:
        subtitles = str(run.made_with.get(cell, {}).get("subtitles", ""))
        # No note if the model's name already ends in the subtitles, as in rows of the plugin.
        if subtitles and not model.endswith(f", subtitles {subtitles}"):
            notes.append(f"{model} on {benchmark}: prompts {_SUBTITLE_TEXTS[subtitles.partition(', ')[0]]}.")
    return list(dict.fromkeys(notes))


def prompt_notes(answers: pd.DataFrame) -> list[str]:
    """Return a sentence for each model on its answers to prompts made for other frames, or without subtitles."""
    notes = []
    for model, of_model in answers.groupby("model", sort=False) if len(answers) else ():
        texts = of_model["prompt_note"].astype(str)
        other_notes = texts[texts.str.startswith(OTHER_FRAMES)]
        if len(other_notes):
            reason = other_notes.iloc[0].removeprefix(f"{OTHER_FRAMES}: ")
            notes.append(f"{model}: {len(other_notes)} of {len(texts)} prompts were made for other frames ({reason}).")
        if n_without := int((texts == NO_SUBTITLES).sum()):
            notes.append(f"{model}: no subtitles available for {n_without} of {len(texts)} answers.")
    return notes


def selections_of(run: Run, part: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of `run.selection_frame` that the answers in `part` are based on, each once."""
    frame = run.selection_frame
    if frame.empty:
        return frame
    keys = ["benchmark", "question_id", "selection_id"]
    selection_keys = part[keys].drop_duplicates()
    return frame.merge(selection_keys, on=keys)


def _distinct_questions(part: pd.DataFrame) -> int:
    return len(part[["benchmark", "question_id"]].drop_duplicates())


# Column of `Run.selection_frame` -> title of the figure per question. Those in `_SHOWN_IF_ANY` are shown only if a
# value is above 0.
_PER_QUESTION = {
    "n_pulls": "Frames scored",
    "n_encoded": "Frames encoded",
    "forward_equivalents": "Forward equivalents",
    "n_scanned_encoded": "Frames scanned",
    **{f"decoded_{mode}": f"Decoded, {mode}" for mode in DECODE_MODES},
}
_SHOWN_IF_ANY = ("n_scanned_encoded", "decoded_reference", "decoded_sync")


def cost_tables(run: Run) -> list[Table]:
    """Return the tables of cost, per question and in hours by stage; [] for a run without selections of known cost."""
    frame = run.selection_frame
    frame = frame if frame.empty else frame[frame["has_cost"]]
    return [] if frame.empty else [_per_question_table(frame), _hours_table(frame)]


def _per_question_table(frame: pd.DataFrame) -> Table:
    """The table of mean costs per question and seed, one row per benchmark, sampler and K."""
    columns = {name: title for name, title in _PER_QUESTION.items() if name not in _SHOWN_IF_ANY or frame[name].any()}
    lines = [
        (
            tuple(map(str, keys)),
            {title: Value(ours=per_question(part, name), digits=1) for name, title in columns.items()},
        )
        for keys, part in sampler_groups(frame, ["benchmark", "label", "k"])
    ]
    notes = (
        "Per question and seed. Frames encoded: a frame shared by several questions of a video counts once, in "
        "equal parts.",
        *forwards_notes(frame),
        "Decoded: frames decoded for the line's forwards, including those skipped over; a frame with a stored "
        "embedding is not decoded.",
    )
    title, keys = "Cost of choosing frames, per question", ("Benchmark", "Sampler", "K")
    return Table.of(lines, name="cost_per_question", title=title, key_titles=keys, notes=notes)


def forwards_notes(frame: pd.DataFrame) -> list[str]:
    """Return notes on how the forward equivalents of `frame` are counted."""
    scored = frame[frame["n_pulls"] > 0]
    silent = sorted(set(scored.loc[~scored["states_cost"], "encoder"]) - {""})
    notes = [FORWARDS_NOTE]
    if silent:
        notes.append(f"The cost of matching frames with text is unknown and left out for: {', '.join(silent)}.")
    if scored["encoder"].nunique() > 1:
        notes.append("Each line is in forwards of its own encoder; forwards of different encoders cannot be compared.")
    return notes


def _hours_table(frame: pd.DataFrame) -> Table:
    """The table of hours by stage for one seed, one row per benchmark, sampler and K."""
    stages = [stage for stage in BLOCKING_STAGES if stage not in ("scan", "ask") or frame[f"seconds_{stage}"].any()]
    lines = []
    for keys, part in sampler_groups(frame, ["benchmark", "label", "k"]):
        seeds = part["seed"].nunique()
        spent = {stage: float(part[f"seconds_{stage}"].sum()) / 3600 / seeds for stage in (*stages, *CONCURRENT_STAGES)}
        hours = {"all": sum(spent[stage] for stage in stages), **spent}
        pulls, forwards = part["n_pulls"].sum() / seeds, (part["forwards"] + part["scan_forwards"]).sum() / seeds
        cells: dict[str, Value | str] = {"Frames scored": f"{pulls:,.0f}", "Forwards made": f"{forwards:,.0f}"}
        cells |= {stage.capitalize(): Value(ours=value, digits=4) for stage, value in hours.items()}
        lines.append((tuple(map(str, keys)), cells))
    is_clocked = frame["seconds_device"] > 0
    busy = frame.loc[is_clocked, "seconds_device"].sum() / (frame.loc[is_clocked, "select_seconds"].sum() or 1.0)
    busy_text = f", computing {busy:.0%} of the time it was held" if busy else ""
    devices = ", ".join(sorted(set(frame["select_device"]) - {""})) or "not recorded"
    return Table.of(
        lines,
        name="cost",
        title="Hours of choosing frames, by stage",
        key_titles=("Benchmark", "Sampler", "K"),
        notes=(
            f"As measured. Device: {devices}{busy_text}. All: wall-clock hours that it was held, per seed, divided "
            "among the lines served at once. Decode and preprocess run in other threads at the same time and are not "
            "part of it.",
            "Frames scored: every frame scored for every question, as the paper counts. Forwards made: forwards that "
            "were run; embeddings are shared by the questions of a video and kept between runs.",
        ),
    )


def grouped_answers(run: Run) -> pd.DataFrame:
    """Return the lines of `run.answer_frame` whose question belongs to a group with an official score."""
    frame = run.answer_frame if run.answers else pd.DataFrame()
    if frame.empty:
        return frame
    has_score = {name: run.facts_of(str(name)).group_score is not None for name in frame["benchmark"].unique()}
    return frame[frame["group"].map(bool) & frame["benchmark"].map(has_score).astype(bool)]


def group_means(part: pd.DataFrame, *, size: int) -> QuestionMeans:
    """Return the official score of each group in `part`, as the mean over seeds; a group's key holds its question ids.

    A failed question counts as wrong. Groups with a hidden answer are left out, and so are seeds that lack a question.

    Args:
        part: lines of one benchmark and configuration, from `grouped_answers`.
        size: number of questions in a group.
    """
    ids = {video: sorted(set(lines)) for video, lines in part.groupby("video", sort=False)["question_id"]}
    scores: dict[str, list[float]] = {}
    for _, rows in part.groupby("seed"):
        n_asked = rows.groupby("video")["question_id"].nunique()
        for video, score in _scores_of_groups(rows, size=size).items():
            if n_asked[video] == len(ids[video]):
                scores.setdefault(video, []).append(score)
    benchmark = str(part["benchmark"].iloc[0])
    return QuestionMeans(
        tuple((benchmark, json.dumps(ids[video])) for video in scores),
        np.array([np.mean(of_seeds) for of_seeds in scores.values()], dtype=np.float64),
        tuple((benchmark, video) for video in scores),
        ("",) * len(scores),
    )


def _scores_of_groups(part: pd.DataFrame, *, size: int) -> dict[str, float]:
    """The official score of each group by its video; a question that failed counts as wrong."""
    # An answered question has no score only if its right answer is hidden.
    is_hidden = part["score"].isna() & part["is_answered"].astype(bool)
    scores = part["score"].fillna(0.0).astype(object).mask(is_hidden, None)
    return score_groups(zip(part["video"], part["question_id"], scores, part["group"], strict=True), size=size)


def group_score_table(run: Run) -> Table | None:
    """Return the official scores of groups, per benchmark, model, sampler, K and seed; None without any."""
    frame = grouped_answers(run)
    if frame.empty:
        return None
    lines, n_hidden = [], 0
    for keys, part in frame.groupby(["benchmark", "model", "label", "k", "seed"], sort=False):
        facts = run.facts_of(str(keys[0])).group_score
        if facts is not None:
            scores = _scores_of_groups(part, size=facts.size)
            n_hidden = max(n_hidden, part["video"].nunique() - len(scores))
            estimate = mean_estimate(list(scores.values()), list(scores))
            figures = {"Group score": Value.of(estimate), "Groups": Value(ours=len(scores), digits=0)}
            lines.append((tuple(map(str, keys)), figures))
    notes = (
        "The benchmark's official score: the questions about one video count together, as its authors weigh them. An "
        "answer that is missing counts as wrong. Brackets: 95 % interval, t on the logit scale, by video.",
        *([f"Groups with a hidden answer, left out: {n_hidden} at most in a line."] if n_hidden else []),
    )
    titles = ("Benchmark", "Model", "Sampler", "K", "Seed")
    return Table.of(lines, name="group_score", title="Score of groups of questions", key_titles=titles, notes=notes)
