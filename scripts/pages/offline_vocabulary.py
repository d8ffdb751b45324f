"""Measure how often `offline` flags a query that it knows, and how often it misses one that it does not.

python -m scripts.pages.offline_vocabulary [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from focus_eval.keyframes.encoders.offline import LEAST_FAMILIARITY, OfflineScorer

QUERIES = Path(__file__).resolve().parents[2] / "tests/recorded/queries/everyday.tsv"


def judged_queries() -> list[tuple[str, bool]]:
    """Return the judged queries, each with True if the vocabulary holds it."""
    lines = [line for line in QUERIES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [(query, place == "inside") for place, query in (line.split("\t") for line in lines)]


def error_rates(familiarity: np.ndarray, is_inside: np.ndarray, limit: float) -> tuple[float, float]:
    """Return the share of inside queries that are flagged and the share of outside ones that are not."""
    is_flagged = familiarity < limit
    return float(is_flagged[is_inside].mean()), float((~is_flagged[~is_inside]).mean())


def best_limit(familiarity: np.ndarray, is_inside: np.ndarray) -> float:
    """Return the familiarity limit with the fewest errors."""
    return max(np.unique(familiarity), key=lambda limit: np.mean((familiarity >= limit) == is_inside))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, help="write each query's judgement and familiarity to this file")
    arguments = parser.parse_args()
    encoder, queries = OfflineScorer(), judged_queries()
    familiarity = np.array([encoder.familiarity(query)[0] for query, _ in queries])
    is_inside = np.array([place for _, place in queries])
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["query", "is_inside", "familiarity", "limit"])
            for (query, place), value in zip(queries, familiarity, strict=True):
                writer.writerow([query, int(place), f"{value:.4f}", LEAST_FAMILIARITY])
    false_flags, misses = error_rates(familiarity, is_inside, LEAST_FAMILIARITY)
    print(f"{is_inside.sum()} queries inside the vocabulary, {100 * false_flags:.1f} % flagged")
    print(f"{(~is_inside).sum()} queries outside, {100 * misses:.1f} % not flagged")
    is_even = np.arange(len(queries)) % 2 == 0
    for fit, held_out in ((is_even, ~is_even), (~is_even, is_even)):
        limit = best_limit(familiarity[fit], is_inside[fit])
        rates = error_rates(familiarity[held_out], is_inside[held_out], limit)
        print(f"limit {limit:.3f} of one half: {100 * rates[0]:.1f} % flagged, {100 * rates[1]:.1f} % missed")


if __name__ == "__main__":
    main()
