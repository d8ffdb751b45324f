"""Measures published selections; writes registry/by_length.csv, registry/differences.csv and docs/leaderboard.md.

python scripts/pages/write_leaderboard.py --files FOLDER --annotations lvb_val.json --rates lvb_val_fps.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from focus_eval.bench.commands.registry import material_of
from focus_eval.registry.cards import read_registry
from focus_eval.registry.replayed import measured_groups
from support.external.leaderboard import update_page, update_records

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure the files at hand; the records of other files stay as they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=Path, default=Path("."), help="folder of the published files")
    parser.add_argument("--registry", type=Path, default=ROOT / "registry", help="folder of the registry")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "leaderboard.md", help="page with the marks")
    for option in ("--annotations", "--rates", "--scenes"):
        parser.add_argument(option, action="append", default=[], metavar="[BENCHMARK=]FILE", help="repeatable")
    arguments = parser.parse_args()
    material = material_of(arguments.files, arguments.annotations, arguments.rates, arguments.scenes)
    cards, missing = read_registry(arguments.registry), list[str]()
    for group in measured_groups(cards.values(), material, missing=missing):
        update_records(arguments.registry, group)
    files = [(card.label(item), item) for card in cards.values() for item in card.selections]
    update_page(arguments.page, arguments.registry, files)
    for line in missing:
        print(line)


if __name__ == "__main__":
    main()
