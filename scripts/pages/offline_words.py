"""Measure how often `offline` finds a picture by an everyday word, and how often it misses one without a warning.

A picture is one of ImageNet's classes, recognised with certainty. A query is right if the relevance of its picture is
at least one half and at most one in a hundred of the pictures that do not show the thing are above it.

    python -m scripts.pages.offline_words [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from focus_eval.keyframes.encoders.offline import OfflineScorer

QUERIES = Path(__file__).resolve().parents[2] / "tests/recorded/queries/pictured.tsv"
LEAST_RELEVANCE, MAX_ABOVE = 0.5, 0.01


@dataclass(frozen=True)
class PicturedQuery:
    """A query, the class of the picture that it must find, and all classes that show what it asks for."""

    text: str
    picture: int
    right_classes: frozenset[int]


def pictured_queries() -> list[PicturedQuery]:
    """Return the recorded queries with their pictures."""
    lines = [line.split("\t") for line in QUERIES.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    classes_by_kind = {line[1]: _class_numbers(line[2]) for line in lines if line[0] == "classes"}
    return [PicturedQuery(line[2], int(line[3]), classes_by_kind[line[1]]) for line in lines if line[0] == "query"]


def _class_numbers(text: str) -> frozenset[int]:
    ranges = [part.split("-") for part in text.split(",")]
    return frozenset(number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1))


def verdict(encoder: OfflineScorer, pictures: np.ndarray, query: PicturedQuery) -> tuple[str, float, float]:
    """Return "right", "flagged" or "wrong", the relevance of the picture, and the share of other pictures above it."""
    relevance = encoder.relevance(pictures, query.text)
    others = np.delete(relevance, list(query.right_classes))
    picture_relevance = float(relevance[query.picture])
    share_above = float((others > picture_relevance).mean())
    if encoder.known_neighbours(query.text):
        return "flagged", picture_relevance, share_above
    is_right = picture_relevance >= LEAST_RELEVANCE and share_above <= MAX_ABOVE
    return "right" if is_right else "wrong", picture_relevance, share_above


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="write each query with its verdict to this file")
    arguments = parser.parse_args()
    encoder, queries = OfflineScorer(), pictured_queries()
    pictures = encoder.class_pictures()
    verdicts = [verdict(encoder, pictures, query) for query in queries]
    counts = Counter(name for name, _, _ in verdicts)
    print(", ".join(f"{counts[name]} {name}" for name in ("right", "flagged", "wrong")), f"of {len(queries)} queries")
    for query, (name, relevance, share_above) in zip(queries, verdicts, strict=True):
        if name == "wrong":
            print(f"  {query.text:30s} class {query.picture:3d}: {relevance:.2f}, {share_above:.1%} above")
    if arguments.csv:
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["query", "picture", "verdict", "relevance", "share_above"])
            for query, (name, relevance, share_above) in zip(queries, verdicts, strict=True):
                writer.writerow([query.text, query.picture, name, f"{relevance:.4f}", f"{share_above:.4f}"])


if __name__ == "__main__":
    main()
