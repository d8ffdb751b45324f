"""Runs the registry's samplers on simulated videos of the realistic world, and derives their figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

import pandas as pd

from focus_eval.benchmarks.evidence import NEAR_SECONDS
from focus_eval.core.errors import InvalidInput
from focus_eval.registry.cards import DERIVED, Card
from focus_eval.registry.figures import NEAR_MEASURE, Figure, measured_figures
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
