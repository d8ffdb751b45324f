"""How far is the LLaVA-Video port from the recorded original, and how far is each deliberate mistake?

Run: python -m scripts.checks.parity_llava_video [tests/recorded/llava_video] [--attention eager]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.support.bench.llava_video_parity import TOLERANCE, Deviation, measure_all, measure_mistakes

RECORDING = Path(__file__).parents[2] / "tests" / "recorded" / "llava_video"


def main() -> None:
    """Print both tables; exit with code 1 if a case is outside the tolerance or a mistake is inside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, nargs="?", default=RECORDING)
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "eager"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = measure_all(arguments.recording, Path(folder), attn_implementation=arguments.attention)
        mistakes = measure_mistakes(arguments.recording, Path(folder))
    print(f"Largest absolute differences, float32, {arguments.attention} attention; tolerance {TOLERANCE:g}\n")
    print("| case | features | merged embeddings | logits | greedy tokens |\n|---|---:|---:|---:|---|")
    for case in cases:
        print(line(case.case, case))
    print("\n| mistake (f3_bilinear_grid) | features | merged embeddings | logits | greedy tokens |")
    print("|---|---:|---:|---:|---|")
    for name, mistake in mistakes.items():
        print(line(name, mistake))
    if not all(case.within_tolerance for case in cases) or any(
        mistake.within_tolerance for mistake in mistakes.values()
    ):
        raise SystemExit(1)


def line(name: str, deviation: Deviation) -> str:
    """Return the table row of one deviation, with both lengths where they differ."""
    lengths = f"{deviation.n_tokens[0]} tokens for {deviation.n_tokens[1]}"
    cells = [lengths if value is None else f"{value:.1e}" for value in (deviation.features, deviation.embeddings)]
    tokens = "equal" if deviation.same_tokens else "differ"
    return f"| {name} | {cells[0]} | {cells[1]} | {deviation.logits:.1e} | {tokens} |"


if __name__ == "__main__":
    main()
