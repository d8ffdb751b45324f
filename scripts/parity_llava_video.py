"""How far is the LLaVA-Video port from the recorded original, and how far is each deliberate mistake?

Run: python scripts/parity_llava_video.py FOLDER [--attention eager]   (FOLDER: the recorded tensors)
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from focus_eval.testing.llava_video_parity import TOLERANCE, Deviation, measure_all, measure_mistakes


def main() -> None:
    """Print both tables; exit code 1 where a case is outside the tolerance, or a mistake inside."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = measure_all(asked.recording, Path(folder), attn_implementation=asked.attention)
        mistakes = measure_mistakes(asked.recording, Path(folder))
    print(f"Largest absolute differences, float32, {asked.attention} attention; tolerance {TOLERANCE:g}\n")
    print("| case | features | merged embeddings | logits | greedy tokens |\n|---|---:|---:|---:|---|")
    for one in cases:
        print(line(one.case, one))
    print("\n| mistake (f3_bilinear_grid) | features | merged embeddings | logits | greedy tokens |")
    print("|---|---:|---:|---:|---|")
    for name, one in mistakes.items():
        print(line(name, one))
    if not all(one.within_tolerance for one in cases) or any(one.within_tolerance for one in mistakes.values()):
        raise SystemExit(1)


def line(name: str, one: Deviation) -> str:
    """Return a row of the table; where lengths differ, both are named."""
    lengths = f"{one.n_tokens[0]} tokens for {one.n_tokens[1]}"
    near = [lengths if value is None else f"{value:.1e}" for value in (one.features, one.embeddings)]
    return f"| {name} | {near[0]} | {near[1]} | {one.logits:.1e} | {'equal' if one.same_tokens else 'differ'} |"


if __name__ == "__main__":
    main()
