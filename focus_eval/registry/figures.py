"""The registry's figures: where each comes from, how they are derived, and what tier they put a sampler in."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.benchmarks.evidence import NEAR_SECONDS
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import resource_path
from focus_eval.registry.cards import CLAIMED, COMPUTED, DERIVED, REPLAYED, Card, PublishedFile
from focus_eval.registry.replayed import LONG_SECONDS, Group, Material, read_csv, write_csv
from focus_eval.report.audit_reading import AuditSource, read_log
from focus_eval.report.sign_flips import sign_flip_p
from focus_eval.report.statistics import Estimate, holm, mean_estimate, video_sums
from focus_eval.report.table import SIGNIFICANT
from focus_eval.selections import load_selections
from focus_eval.selections.lmms_logs import find_logs

NEAR = f"within {NEAR_SECONDS:g} s"
FIGURES_FILE = "figures.csv"
# What tells two figures apart; the others are what was found.
_KEYS = ("status", "sampler", "name", "version", "benchmark", "k", "measure", "month")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure, as texts, for it is compared with what a file says.

    Args:
        status: where it comes from: `DERIVED`, `REPLAYED`, `COMPUTED` or `CLAIMED`.
        sampler: its folder; "" for a baseline that stands beside published files.
        name: how its row is called.
        version: of the sampler's class, with its file's digest, or of the card.
        measure: "within 2 s", "nearness", "cost", "accuracy, MODEL".
        value, low, high: in [0, 1], the ends of a 95 % interval clustered by video; ends "" where there are none.
        tier: 1 is the best; "" where nothing was compared.
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
        return tuple(getattr(self, name) for name in _KEYS)


COLUMNS = tuple(item.name for item in fields(Figure))


def read_figures(folder: Path) -> list[Figure]:
    """Return the recorded figures of a registry; none where there is no file.

    Raises:
        InvalidInput: other columns.
    """
    return [Figure(**dict(zip(COLUMNS, row, strict=True))) for row in read_csv(folder / FIGURES_FILE, COLUMNS)]


def write_figures(folder: Path, old: Iterable[Figure], new: Iterable[Figure]) -> list[Figure]:
    """Write `old` with `new` in place of those of the same key, and return them; earlier versions and months stay."""
    by_key = {item.key: item for item in old} | {item.key: item for item in new}
    ordered = sorted(by_key.values(), key=lambda item: (item.benchmark, int(item.k), item.name, item.key))
    write_csv(folder / FIGURES_FILE, COLUMNS, [[getattr(item, name) for name in COLUMNS] for item in ordered])
    return ordered


def tiers_of(values: Mapping[str, ArrayLike], videos: Sequence[object]) -> dict[str, int]:
    """Return the tier of each name, from 1.

    In the order of the means, a tier begins at the first that the paired test shows to be below the best of the tier
    before it (sign flips over videos, Holm over all pairs). Within a tier nobody is first.

    Args:
        values: per question in [0, 1], shape `(n,)`, the same questions for all.
        videos: of each question, shape `(n,)`.
    """
    found = {name: np.asarray(values[name], dtype=np.float64) for name in values}
    order = sorted(found, key=lambda name: (-float(found[name].mean()), name))
    pairs, shares = list(combinations(order, 2)), video_sums(np.ones(len(videos)), videos)
    p_values = [sign_flip_p(video_sums(found[a] - found[b], videos), weights=shares)[0] for a, b in pairs]
    p_of = dict(zip(pairs, holm(p_values), strict=True))
    tiers, best = dict.fromkeys(order[:1], 1), order[0] if order else ""
    for name in order[1:]:
        tiers[name] = max(tiers.values())
        if p_of[best, name] < SIGNIFICANT:
            tiers[name], best = tiers[name] + 1, name
    return tiers


def measured(
    values: Mapping[str, ArrayLike], videos: Sequence[object], about: Mapping[str, Figure], measure: str
) -> Iterator[Figure]:
    """Yield the figure of each name of `values`: its mean with its interval and its tier among them.

    Args:
        about: what else is said of each, with any measure and value.
    """
    tiers = tiers_of(values, videos)
    for name, found in values.items():
        mean = mean_estimate(found, videos)
        yield replace(about[name], measure=measure, tier=str(tiers[name]), **_texts(mean))


def _texts(mean: Estimate) -> dict[str, str]:
    low, high = ("" if end is None else f"{end:.4f}" for end in (mean.low, mean.high))
    return {"value": f"{mean.value:.4f}", "low": low, "high": high, "questions": str(mean.questions)}


def replayed_figures(group: Group, cards: Mapping[str, Card]) -> list[Figure]:
    """Return recall and nearness of the selections of one benchmark and K, and of uniform frames, with their tiers.

    Moments are judged in videos of `LONG_SECONDS` and more: in shorter ones they are nearly always in view.
    """
    ground = group.ground
    is_judged = np.array([not ground.are_moments or case.duration_seconds >= LONG_SECONDS for case in ground.cases])
    videos = [ground.videos[case.question_id] for case, kept in zip(ground.cases, is_judged, strict=True) if kept]
    about = {}
    for name in group.tested:
        owner = group.owners.get(name, "")
        about[name] = Figure(
            status=REPLAYED if owner else DERIVED,
            sampler=owner,
            name=name,
            version=str(cards[owner].version) if owner else "1",
            benchmark=ground.benchmark,
            k=str(group.k),
        )
    return [
        item
        for measure in ground.measures
        for item in measured(
            {name: group.figures[name][measure].to_numpy()[is_judged] for name in about}, videos, about, measure
        )
    ]


def computed_figures(card: Card, material: Material) -> Iterator[Figure]:
    """Yield the accuracy that a card's files of answers give, where they are at hand; all questions count alike."""
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
    """Return whether each question was answered right, from a log of lmms-eval or a file of selections with answers."""
    if item.format.startswith("lmms"):
        log = read_log(find_logs(path)[0], AuditSource(), [])
        found = {key: answer.score for key, answer in log.answers.items()}
    else:
        questions = material.questions(item.benchmark)
        loaded = load_selections(path, format=item.format, questions=questions, left_out=[])
        found = {key: chosen.answered.is_correct if chosen.answered else None for key, chosen in loaded.items()}
    scores = {key: float(score) for key, score in found.items() if score is not None}
    if len(scores) < len(found) or not scores:
        raise InvalidInput(f"{path}: {len(scores)} of {len(found)} questions say whether the answer is right")
    return scores


def claimed_figures(cards: Mapping[str, Card]) -> list[Figure]:
    """Return what papers claim of the registry's samplers: the cards' own claims, and the tables of `results/paper`."""
    made = []
    for card in cards.values():
        for claim in card.claims:
            model = f"{claim.model} ({claim.place})"
            made.append(_claimed(card, claim.benchmark, str(claim.k), model, str(claim.accuracy)))
    for name in ("main_results", "more_benchmarks"):
        with open(resource_path("paper") / f"{name}.csv", newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for benchmark in [key for key in row if key not in _NO_BENCHMARKS and row[key]]:
                    if row["sampler"] in cards:
                        place = row["table"] if row["table"] == "appendix" else f"table {row['table']}"
                        model = f"{row['model']} ({row['source']}, {place})"
                        made.append(_claimed(cards[row["sampler"]], benchmark, row["frames"], model, row[benchmark]))
    return made


_NO_BENCHMARKS = ("model", "frames", "llm", "sampler", "table", "source")


def _claimed(card: Card, benchmark: str, k: str, model: str, percent: str) -> Figure:
    said = {"benchmark": benchmark, "k": k, "measure": f"accuracy, {model}", "value": f"{float(percent) / 100:.4f}"}
    return Figure(status=CLAIMED, sampler=card.name, name=card.title, version="", **said)


@dataclass
class Verified:
    """What deriving figures again showed.

    Args:
        n_same: figures that came out as recorded.
        differing: a sentence for each that did not, or that is not recorded.
        not_derived: why the others were not derived.
    """

    n_same: int = 0
    differing: list[str] = field(default_factory=list)
    not_derived: list[str] = field(default_factory=list)

    def compare(
        self, recorded: Mapping[tuple[str, ...], Figure], again: Iterable[Figure], *, with_tiers: bool = True
    ) -> None:
        """Count what was derived `again` against what is recorded."""
        for item in again:
            stated = recorded.get(item.key)
            if stated is not None and not with_tiers:
                item = replace(item, tier=stated.tier)
            if stated == item:
                self.n_same += 1
                continue
            what = f"{item.name}, {item.benchmark}, K = {item.k}, {item.measure}"
            said = "is not recorded" if stated is None else f"is recorded as {_shown(stated)}"
            self.differing.append(f"{what}: {said}, derived again: {_shown(item)}")


def _shown(item: Figure) -> str:
    interval = f" [{item.low}, {item.high}]" if item.low else ""
    return f"{item.value}{interval}" + (f", tier {item.tier}" if item.tier else "")
