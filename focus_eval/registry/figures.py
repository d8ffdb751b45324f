"""The registry's figures and their CSV files: derived from published files or simulated videos, with tiers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from itertools import combinations
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from focus_eval.bench.benchmarks.question import NEAR_SECONDS
from focus_eval.bench.report.measures import forwards_percent
from focus_eval.bench.report.recall import recall_column
from focus_eval.bench.report.run import load_run
from focus_eval.bench.report.sign_flips import sign_flip_p
from focus_eval.bench.report.statistics import Estimate, holm, mean_estimate, video_sums
from focus_eval.bench.report.table import SIGNIFICANT
from focus_eval.core.errors import InvalidInput
from focus_eval.external.imports.loading import load_selections
from focus_eval.external.reading import ReadingOptions, read_runs
from focus_eval.keyframes.rows.records import replace_file
from focus_eval.keyframes.samplers.registry import sampler_class
from focus_eval.lab.overview import lab_frame
from focus_eval.lab.simulation import SamplerEntry, SimulationConfig, run_simulation, selection_ids
from focus_eval.lab.verdict import LOOKS, with_failures_as_0
from focus_eval.registry.cards import COMPUTED, DERIVED, REPLAYED, Card, PublishedFile
from focus_eval.registry.replayed import Group, Material

NEAR_MEASURE = f"within {NEAR_SECONDS:g} s"
WORLD, K = "realistic", (8, 32)
COST = "cost"
# A ceiling and a floor say what can be reached; they are no samplers to be ranked.
_RANKED = ("sampler", "control")
# The fields that tell two figures apart; the others hold the result.
KEYS = ("status", "sampler", "name", "version", "benchmark", "k", "measure", "month")


# A row of a CSV file, all of it text: figures are compared with a file's to the last digit.
Record = Mapping[str, str]


@dataclass(frozen=True)
class RecordFile:
    """A CSV file of the registry.

    Args:
        keys: the columns that identify a record.
        order: sort key for the records of one benchmark and K.
    """

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    order: Callable[[Record], tuple[object, ...]]

    def read(self, folder: Path) -> list[Record]:
        """Return the records of the file in `folder`; [] if there is no file.

        Raises:
            InvalidInput: other columns.
        """
        path = folder / self.name
        if not path.exists():
            return []
        with open(path, newline="", encoding="utf-8") as file:
            head, *rows = list(csv.reader(file)) or [[]]
        if tuple(head) != self.columns or any(len(row) != len(head) for row in rows):
            raise InvalidInput(f"{path}: not a file of the registry's figures; its columns are {', '.join(head)}")
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def update(self, folder: Path, records: Iterable[Record]) -> list[Record]:
        """Replace the records of the same keys by `records`, write the file and return all of it.

        Records are sorted by benchmark, number of frames and name, not by rank.
        """
        by_key = {tuple(item[key] for key in self.keys): item for item in (*self.read(folder), *records)}
        ordered = sorted(by_key.values(), key=self._place)
        (folder / self.name).parent.mkdir(parents=True, exist_ok=True)
        with replace_file(folder / self.name) as part, open(part, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(ordered)
        return ordered

    def _place(self, record: Record) -> tuple[object, ...]:
        """Return the sort key of a record: benchmark, number of frames, then its own order."""
        return record["benchmark"], int(record["k"]), *self.order(record)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of the registry; all fields are text, as in its CSV file.

    Args:
        status: its source: `DERIVED`, `REPLAYED` or `COMPUTED`.
        sampler: its folder; "" for a baseline that published files are compared with.
        name: name of its row.
        version: of the sampler's class, with its file's digest, or of the card.
        measure: "within 2 s", "nearness", "cost", "accuracy, MODEL".
        value, low, high: in [0, 1], the ends of a 95 % interval clustered by video; ends "" if there are none.
        tier: 1 is the best; "" if nothing was compared.
        seed, month: of simulated videos.
    """

    status: str
    sampler: str
    name: str
    version: str
    benchmark: str
    k: str
    measure: str = ""
    value: str = ""
    low: str = ""
    high: str = ""
    tier: str = ""
    questions: str = ""
    seed: str = ""
    month: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Values of `KEYS`, the fields that identify the figure."""
        return tuple(getattr(self, name) for name in KEYS)


FIGURES = RecordFile(
    "figures.csv",
    tuple(item.name for item in fields(Figure)),
    KEYS,
    order=lambda record: (record["name"], *(record[key] for key in KEYS)),
)


def read_figures(folder: Path) -> list[Figure]:
    """Return the recorded figures of a registry; [] if there is no file.

    Raises:
        InvalidInput: other columns.
    """
    return [Figure(**record) for record in FIGURES.read(folder)]


def write_figures(folder: Path, figures: Iterable[Figure]) -> list[Figure]:
    """Replace the figures of the same keys by `figures`, and return all; earlier versions and months stay."""
    return [Figure(**record) for record in FIGURES.update(folder, [vars(item) for item in figures])]


def tiers_of(values: Mapping[str, ArrayLike], videos: Sequence[object]) -> dict[str, int]:
    """Return the tier of each name, from 1.

    In the order of the means, a new tier begins at the first name that the paired test shows to be below the best of
    the tier before it (sign flips over videos, Holm over all pairs). Names within a tier are not ranked.

    Args:
        values: per question in [0, 1], shape `(n,)`, the same questions for all.
        videos: of each question, shape `(n,)`.
    """
    arrays = {name: np.asarray(values[name], dtype=np.float64) for name in values}
    order = sorted(arrays, key=lambda name: (-float(arrays[name].mean()), name))
    pairs, shares = list(combinations(order, 2)), video_sums(np.ones(len(videos)), videos)
    p_values = [sign_flip_p(video_sums(arrays[a] - arrays[b], videos), weights=shares)[0] for a, b in pairs]
    p_of = dict(zip(pairs, holm(p_values), strict=True))
    tiers, best = dict.fromkeys(order[:1], 1), order[0] if order else ""
    for name in order[1:]:
        tiers[name] = max(tiers.values())
        if p_of[best, name] < SIGNIFICANT:
            tiers[name], best = tiers[name] + 1, name
    return tiers


def measured_figures(
    values: Mapping[str, ArrayLike], videos: Sequence[object], templates: Mapping[str, Figure], measure: str
) -> Iterator[Figure]:
    """Yield the figure of each name in `values`: its mean with its interval and its tier among them.

    Args:
        templates: the other fields of each name's figure.
    """
    tiers = tiers_of(values, videos)
    for name, array in values.items():
        yield replace(templates[name], measure=measure, tier=str(tiers[name]), **_texts(mean_estimate(array, videos)))


def _texts(mean: Estimate) -> dict[str, str]:
    """Return value, interval and number of questions of an estimate as text; ends without interval are ""."""
    low, high = ("" if end is None else f"{end:.4f}" for end in (mean.low, mean.high))
    return {"value": f"{mean.value:.4f}", "low": low, "high": high, "questions": str(mean.questions)}


def replayed_figures(group: Group, cards: Mapping[str, Card]) -> list[Figure]:
    """Return recall and nearness of the selections of one benchmark and K, and of uniform frames, with their tiers.

    Videos of `LONG_SECONDS` and more are judged: in shorter ones nearly all evidence is near a keyframe.
    """
    ground = group.ground
    is_judged = ground.is_long
    videos = ground.videos_of(is_judged)
    templates = {}
    for name in group.figures:
        owner = group.owners.get(name, "")
        templates[name] = Figure(
            status=REPLAYED if owner else DERIVED,
            sampler=owner,
            name=name,
            version=str(cards[owner].version) if owner else "1",
            benchmark=ground.benchmark,
            k=str(group.k),
        )
    figures: list[Figure] = []
    for measure in ground.means:
        values = {name: group.figures[name][measure].to_numpy()[is_judged] for name in templates}
        figures += measured_figures(values, videos, templates, measure)
    return figures


def computed_figures(card: Card, material: Material) -> Iterator[Figure]:
    """Yield the accuracy from a card's files of answers, if they are at hand; all questions weigh alike."""
    for item in (*card.selections, *card.answers):
        path = material.find(card, item) if item.model else None
        if path is None or item.benchmark not in material.annotations:
            continue
        scores, video_of = _scores(item, path, material), material.videos(item.benchmark)
        yield Figure(
            status=COMPUTED,
            sampler=card.name,
            name=card.label(item),
            version=str(card.version),
            benchmark=item.benchmark,
            k=str(item.k),
            measure=f"accuracy, {item.model}",
            **_texts(mean_estimate(list(scores.values()), [video_of.get(key, key) for key in scores])),
        )


def _scores(item: PublishedFile, path: Path, material: Material) -> dict[str, float]:
    """Return the score of each scored question by id, from a log of lmms-eval or a file of selections with answers."""
    questions = material.questions(item.benchmark)
    score_by_question: dict[str, float | None]
    if item.format.startswith("lmms"):
        runs, _ = read_runs([path], ReadingOptions(questions=questions))
        score_by_question = {answer.question_id: answer.score for answer in runs[0].answers}
    else:
        loaded = load_selections(path, format=item.format, questions=questions, allow_missing=True, left_out=[])
        score_by_question = {key: entry.verdict.score if entry.verdict else None for key, entry in loaded.items()}
    scores = {key: float(score) for key, score in score_by_question.items() if score is not None}
    if len(scores) < len(score_by_question) or not scores:
        raise InvalidInput(f"{path}: {len(scores)} of {len(score_by_question)} questions have a scored answer")
    return scores


@dataclass
class Verification:
    """The result of deriving figures again.

    Args:
        n_same: figures that equal the recorded ones.
        differences: a sentence for each that differs, or is not recorded.
        skipped: reasons why other figures were not derived.
    """

    n_same: int = 0
    differences: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def compare(
        self, recorded: Mapping[tuple[str, ...], Figure], derived: Iterable[Figure], *, with_tiers: bool = True
    ) -> None:
        """Count `derived` figures that equal the recorded ones, and note a sentence for each other one.

        `with_tiers=False` ignores tiers, which depend on the other samplers.
        """
        for item in derived:
            old = recorded.get(item.key)
            if old is not None and not with_tiers:
                item = replace(item, tier=old.tier)
            if old == item:
                self.n_same += 1
                continue
            subject = f"{item.name}, {item.benchmark}, K = {item.k}, {item.measure}"
            record = "is not recorded" if old is None else f"is recorded as {_figure_text(old)}"
            self.differences.append(f"{subject}: {record}, derived again: {_figure_text(item)}")


def _figure_text(item: Figure) -> str:
    """Return a figure's value, interval and tier as text, for a message."""
    interval = f" [{item.low}, {item.high}]" if item.low else ""
    return f"{item.value}{interval}" + (f", tier {item.tier}" if item.tier else "")


def videos_of(figures: Sequence[Figure], seed: int | None = None) -> tuple[str, int]:
    """Return month and seed of the simulated videos: the last recorded ones, or this month and a new `seed`.

    Raises:
        InvalidInput: none are recorded, and no seed is given.
    """
    recorded = max(((item.month, int(item.seed)) for item in figures if item.month and item.seed), default=None)
    if seed is None and recorded is None:
        raise InvalidInput("no figures of simulated videos are recorded; give their --seed, e.g. of a commit on main")
    if recorded is not None and seed in (None, recorded[1]):
        return recorded
    return f"{datetime.now(timezone.utc):%Y-%m}", cast(int, seed)


def ranked(cards: Mapping[str, Card]) -> list[Card]:
    """Return the cards with code to rank: no ceilings, no floors, and no samplers that ask a model.

    Replies of a model are scripted in simulated videos, so they do not measure a real one.
    """
    with_code = [card for card in cards.values() if card.sampler and card.role in _RANKED]
    return [card for card in with_code if not sampler_class(card.sampler_text).needs_llm]


def version_of(card: Card) -> str:
    """Return the version of a card's sampler, with its file's hash if the sampler is a plugin file."""
    sampler = card.make_sampler()
    return f"{sampler.version}-{sampler.file_digest[:8]}" if sampler.file_digest else str(sampler.version)


def simulated_figures(
    cards: Sequence[Card],
    folder: Path,
    *,
    seed: int,
    month: str,
    videos: int = LOOKS[0],
    progress: Callable[[int, int], None] = lambda n_done, of: None,
) -> list[Figure]:
    """Run `cards` on the videos of `seed`, and return evidence recall with tiers, and cost, at each K.

    Args:
        folder: of the run's rows; questions that have a row are not run again.

    Raises:
        InvalidInput: `folder` holds the run of another seed, or a sampler gave no row.
    """
    config = _config(cards, seed=seed, videos=videos)
    run_simulation(config, folder, progress=progress)
    frame = with_failures_as_0(lab_frame(load_run(folder), only=selection_ids(config)))
    return [item for k in K for item in _at_k(cards, config, frame, k, month)]


def _config(cards: Sequence[Card], *, seed: int, videos: int) -> SimulationConfig:
    """Return the simulation of the cards' samplers in the registry's world, at each K."""
    entries = [SamplerEntry(sampler=card.sampler_text, options=card.options) for card in cards]
    return SimulationConfig(name="registry", worlds=[WORLD], samplers=[*entries], k=[*K], seed=seed, videos=videos)


def _at_k(cards: Sequence[Card], config: SimulationConfig, frame: pd.DataFrame, k: int, month: str) -> Iterator[Figure]:
    """Yield recall (with tiers) and cost of each card's sampler at one K; raise InvalidInput if questions differ."""
    templates, values, costs = {}, {}, {}
    questions: list[str] = []
    for card, entry in zip(cards, config.samplers, strict=True):
        ids = selection_ids(config.model_copy(update={"samplers": [entry], "k": [k]}))
        rows = frame[frame["selection_id"].isin(ids)].sort_values("question_id")
        questions = questions or rows["question_id"].tolist()
        if rows["question_id"].tolist() != questions or not questions:
            raise InvalidInput(f"{card.name}: {len(rows)} rows at K = {k}, the others have {len(questions)}")
        values[card.name] = rows[recall_column(NEAR_SECONDS)].to_numpy(dtype=float)
        costs[card.name] = forwards_percent(rows[rows["error"].isna()])
        templates[card.name] = Figure(
            status=DERIVED,
            sampler=card.name,
            name=card.title,
            version=version_of(card),
            benchmark=WORLD,
            k=str(k),
            measure=COST,
            seed=str(config.seed),
            month=month,
        )
    yield from measured_figures(values, questions, templates, NEAR_MEASURE)
    for name, cost in costs.items():
        text = "" if cost is None else f"{cost / 100:.6f}"
        yield replace(templates[name], value=text, questions=str(len(questions)))
