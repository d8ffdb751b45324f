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
    from focus_eval.core.types import Question
    from focus_eval.imports.relevance import PublishedRelevance
    from focus_eval.samplers.base import FrameSampler

KIND_MEANINGS = {"probability": "taken as they are", "cosine": "relevance is (1 + cosine) / 2"}


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
    """Write the relevance in `scores` to the run folder `out`, and print what was read and left out."""
    from focus_eval.benchmarks.registry import read_annotations, read_rates, stated_rates
    from focus_eval.imports.relevance import RelevanceOptions, read_relevance
    from focus_eval.imports.run_folder import write_run
    from focus_eval.samplers.registry import make_sampler

    import_options = make("import relevance", RelevanceOptions, options)
    if frames is None or annotations is None:
        raise InvalidInput("import relevance SCORES FRAMES needs both files and --annotations")
    if (out / "selections").exists():
        raise InvalidInput(f"{out}: holds a run already; name another folder with --out")
    questions = read_annotations(benchmark, annotations)
    rate_of = read_rates(rates) if rates is not None else stated_rates(questions)
    encoder = name or scores.resolve().parent.name
    relevance = read_relevance(scores, frames, questions, rate_of, encoder=encoder, kind=import_options.kind)
    [written] = write_run(out, relevance.rows, name=encoder)
    for line in relevance.left_out:
        print_folded(line)
    n_replayed = sum(bool(row.evidence_seconds) for row in relevance.rows)
    print_folded(
        f"{written}: {relevance.n_scores:,} scores of {len(relevance.rows)} of {len(questions)} questions, "
        f"{n_replayed} with evidence; {len(relevance.left_out)} left out"
    )
    span = f"{relevance.low:.3g} to {relevance.high:.3g}"
    print_folded(f"read as {_plural(relevance.kind)} ({span}): {KIND_MEANINGS[relevance.kind]}")
    if import_options.published is not None:
        aks = make_sampler("aks", t1=import_options.t1, max_depth=import_options.max_depth)
        for line in published_check(relevance, questions, import_options.published, aks=aks):
            print_folded(line)


def _plural(kind: str) -> str:
    return "probabilities" if kind == "probability" else "cosines"


def published_check(
    relevance: PublishedRelevance, questions: Sequence[Question], published: Path, *, aks: FrameSampler
) -> list[str]:
    """Return how often `aks` chooses the published frames from these scores, and how the file was made."""
    from focus_eval.core.types import frozen_floats, frozen_ints
    from focus_eval.imports.aks_settings import infer_settings
    from focus_eval.imports.loading import load_selections
    from focus_eval.samplers.bandit import nearest_pulled
    from focus_eval.samplers.base import derived_rng

    published_selections = load_selections(published, format="aks", questions=questions, allow_missing=True)
    k = max(selection.k for selection in published_selections.values())
    rng, differing_ids = derived_rng(0), []
    rows = [row for row in relevance.rows if row.question_id in published_selections and len(row.pulled_frames) > k]
    for row in rows:
        assert row.info is not None  # the scores were read with a rate
        pulled_frames, values = (
            frozen_ints(row.pulled_frames),
            frozen_floats(np.array(row.pulled_relevance, dtype=float)),
        )
        choice = aks.select(
            row.info,
            k=k,
            pull=lambda frames, pulled_frames=pulled_frames, values=values: nearest_pulled(
                frames, pulled_frames, values
            ),  # type: ignore[misc]
            rng=rng,
        )
        if list(choice.keyframes) != sorted(published_selections[row.question_id].keyframes or ()):
            differing_ids.append(row.question_id)
    first = f"; the first of the others: {differing_ids[0]}" if differing_ids else ""
    n_same = len(rows) - len(differing_ids)
    frames = [
        (published_selections[row.question_id].keyframes or (), row.info.n_frames, row.info.fps)
        for row in rows
        if row.info
    ]
    options = aks.options
    return [
        f"{published}: aks at K = {k}, t1={options['t1']:g}, max_depth={options['max_depth']} chooses the same frames "
        f"for {n_same} of {len(rows)} questions with more than {k} candidates{first}",
        f"{published.name}: {infer_settings(frames) or 'nothing to infer its settings from'}",
    ]
