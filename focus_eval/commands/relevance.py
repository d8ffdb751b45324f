"""`focus-eval import relevance`: scores that others published become relevance that a simulation replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.commands.console import print_folded
from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import make

if TYPE_CHECKING:
    from focus_eval.benchmarks.question import Question
    from focus_eval.samplers.base import FrameSampler
    from focus_eval.selections.relevance import PublishedRelevance

_MEANT = {"probability": "taken as they are", "cosine": "relevance is (1 + cosine) / 2"}


def import_relevance(
    scores: Path,
    frames: Path | None,
    out: Path,
    options: Mapping[str, Any],
    *,
    benchmark: str,
    annotations: Path | None,
    rates: Path | None,
    name: str,
) -> None:
    """Write the relevance in `scores` to the run folder `out`, and say what was read and what was left out."""
    from focus_eval.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.selections.published_rows import PublishedRows, write_run
    from focus_eval.selections.relevance import RelevanceOptions, read_relevance

    said = make("import relevance", RelevanceOptions, options)
    if frames is None or annotations is None:
        raise InvalidInput("import relevance SCORES FRAMES needs both files and --annotations")
    if (out / "selections").exists():
        raise InvalidInput(f"{out}: holds a run already; name another folder with --out")
    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates) if rates is not None else stated_rates(questions)
    encoder = name or scores.resolve().parent.name
    found = read_relevance(scores, frames, questions, rate_of, encoder=encoder, kind=said.kind)
    [written] = write_run(out, PublishedRows(name=encoder, model="", selections=found.rows, answers=[]))
    for line in found.left_out:
        print_folded(line)
    n_replayed = sum(bool(row.evidence_seconds) for row in found.rows)
    print_folded(
        f"{written}: {found.n_scores:,} scores of {len(found.rows)} of {len(questions)} questions, "
        f"{n_replayed} with evidence; {len(found.left_out)} left out"
    )
    print_folded(f"read as {_plural(found.kind)} ({found.low:.3g} to {found.high:.3g}): {_MEANT[found.kind]}")
    if said.published is not None:
        print_folded(published_check(found, questions, said.published))


def _plural(kind: str) -> str:
    return "probabilities" if kind == "probability" else "cosines"


def published_check(
    found: PublishedRelevance, questions: Sequence[Question], published: Path, *, aks: FrameSampler | None = None
) -> str:
    """Return how often `aks` chooses the published frames from these scores: whether they were read right.

    Args:
        aks: with other options than the published ones.
    """
    from focus_eval.core.types import VideoInfo, frozen_floats, frozen_ints
    from focus_eval.samplers.bandit import nearest_pulled
    from focus_eval.samplers.base import derived_rng
    from focus_eval.samplers.registry import make_sampler
    from focus_eval.selections import load_selections

    theirs = load_selections(published, format="aks", questions=questions, allow_missing=True)
    k = max(chosen.k for chosen in theirs.values())
    ours, rng, other = aks or make_sampler("aks"), derived_rng(0), []
    rows = [row for row in found.rows if row.question_id in theirs and len(row.pulled_frames) > k]
    for row in rows:
        known, values = frozen_ints(row.pulled_frames), frozen_floats(np.array(row.pulled_relevance, dtype=float))
        mine = ours.select(
            VideoInfo(row.n_frames, row.fps),
            k=k,
            pull=lambda frames, known=known, values=values: nearest_pulled(frames, known, values),  # type: ignore[misc]
            rng=rng,
        )
        if list(mine.keyframes) != sorted(theirs[row.question_id].keyframes or ()):
            other.append(row.question_id)
    first = f"; the first of the others: {other[0]}" if other else ""
    return (
        f"{published}: aks at K = {k} chooses the same frames for {len(rows) - len(other)} of {len(rows)} questions "
        f"with more than {k} candidates{first}"
    )
