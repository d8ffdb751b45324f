"""Runs the registry's samplers on the realistic world, whose seed changes by month, and derives their figures."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd

from focus_eval.benchmarks.evidence import NEAR_SECONDS
from focus_eval.core.errors import InvalidInput
from focus_eval.registry.cards import DERIVED, Card
from focus_eval.registry.figures import NEAR, Figure, measured
from focus_eval.report.lab import lab_frame
from focus_eval.report.measures import forwards_percent
from focus_eval.report.recall import recall_column
from focus_eval.report.run import load_run
from focus_eval.report.verdict import LOOKS, with_failures_as_0
from focus_eval.samplers.registry import sampler_class
from focus_eval.simulation.running import SamplerEntry, SimulationConfig, run_simulation, selection_ids

WORLD, K = "realistic", (8, 32)
COST = "cost"
# A ceiling and a floor say what can be reached; they are no samplers to be ranked.
_RANKED = ("sampler", "control")


def this_month() -> str:
    """Return e.g. "2026-11"."""
    return f"{datetime.now(timezone.utc):%Y-%m}"


def seed_of(month: str, figures: Sequence[Figure], *, seed: int | None = None) -> int:
    """Return the seed of a month's videos: as recorded, else `seed`, else one drawn now.

    A sampler cannot be fitted to videos that are drawn after it was written.

    Raises:
        InvalidInput: no month, or another `seed` than is recorded for it.
    """
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month):
        raise InvalidInput(f"--month {month}: not a month, e.g. 2026-11")
    recorded = {int(item.seed) for item in figures if item.month == month and item.seed}
    if recorded and seed not in (None, *recorded):
        raise InvalidInput(f"--seed {seed}: the figures of {month} have seed {min(recorded)}; name another --month")
    if recorded:
        return min(recorded)
    return secrets.randbelow(2**31) if seed is None else seed


def ranked(cards: Mapping[str, Card]) -> list[Card]:
    """Return the cards that name code to run; ceilings and floors are left out, and samplers that ask a model.

    In simulated videos a model's replies are scripted: they say nothing of one that looks.
    """
    found = [card for card in cards.values() if card.sampler and card.role in _RANKED]
    return [card for card in found if not sampler_class(card.sampler_text).needs_llm]


def version_of(card: Card) -> str:
    """Return the version of a card's sampler, with the hash of its file where nobody installed it."""
    made = card.made()
    return f"{made.version}-{made.file_digest[:8]}" if made.file_digest else str(made.version)


def simulated_figures(
    cards: Sequence[Card],
    folder: Path,
    *,
    seed: int,
    month: str,
    videos: int = LOOKS[0],
    progress: Callable[[int, int], None] = lambda done, of: None,
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
    entries = [SamplerEntry(sampler=card.sampler_text, options=card.options) for card in cards]
    return SimulationConfig(name="registry", worlds=[WORLD], samplers=[*entries], k=[*K], seed=seed, videos=videos)


def _at_k(cards: Sequence[Card], config: SimulationConfig, frame: pd.DataFrame, k: int, month: str) -> Iterator[Figure]:
    about, values, costs = {}, {}, {}
    questions: list[str] = []
    for card, entry in zip(cards, config.samplers, strict=True):
        ids = selection_ids(config.model_copy(update={"samplers": [entry], "k": [k]}))
        mine = frame[frame["selection_id"].isin(ids)].sort_values("question_id")
        questions = questions or mine["question_id"].tolist()
        if mine["question_id"].tolist() != questions or not questions:
            raise InvalidInput(f"{card.name}: {len(mine)} rows at K = {k}, the others have {len(questions)}")
        values[card.name] = mine[recall_column(NEAR_SECONDS)].to_numpy(dtype=float)
        costs[card.name] = forwards_percent(mine[mine["error"].isna()])
        about[card.name] = Figure(
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
    yield from measured(values, questions, about, NEAR)
    for name, cost in costs.items():
        text = "" if cost is None else f"{cost / 100:.6f}"
        yield replace(about[name], value=text, questions=str(len(questions)))
