"""Write lengths and rates of Video-MME's videos as a CSV for --rates: `videomme_rates.py FOLDER OUT.csv`.

FOLDER holds `videomme.json` and the published selections that `research/docs/leaderboard.md` names; no video is read.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from focus_eval_research.field_data import RATE_FILES, find_public, videomme_rates

from focus_eval.bench.benchmarks.registry import read_annotations, write_rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the public files")
    parser.add_argument("out", type=Path, help="CSV file to write")
    arguments = parser.parse_args()
    annotations = find_public(arguments.folder, "videomme.json")
    rates = {} if annotations is None else videomme_rates(arguments.folder, read_annotations("videomme", annotations))
    if not rates:
        raise SystemExit(f"{arguments.folder}: needs videomme.json, {', '.join(RATE_FILES)}")
    write_rates(arguments.out, {question_id: rate.info for question_id, rate in rates.items()})


if __name__ == "__main__":
    main()
