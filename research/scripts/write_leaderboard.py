"""Measures published selections; writes research/results/leaderboard/*.csv and research/docs/leaderboard.md.

python research/scripts/write_leaderboard.py --files FOLDER --annotations lvb_val.json --rates lvb_val_fps.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from focus_eval_research.leaderboard import update_page, update_records
from focus_eval_research.published import read_published
from focus_eval_research.replayed import Material, measured_groups, missing_files

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Measure the files at hand; the records of other files stay as they are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=Path, default=Path("."), help="folder of the published files")
    records = ROOT / "research" / "results" / "leaderboard"
    parser.add_argument("--records", type=Path, default=records, help="folder of the measured figures")
    parser.add_argument("--list", type=Path, help="published files. [default: research/configs/selections.yaml]")
    parser.add_argument(
        "--page", type=Path, default=ROOT / "research" / "docs" / "leaderboard.md", help="page with the marks"
    )
    for option in ("--annotations", "--rates", "--scenes"):
        parser.add_argument(option, action="append", default=[], metavar="[BENCHMARK=]FILE", help="repeatable")
    arguments = parser.parse_args()
    material = Material.of(arguments.files, arguments.annotations, arguments.rates, arguments.scenes)
    listed = read_published(arguments.list)
    for line in missing_files(listed, material):
        print(line)
    for group in measured_groups(listed, material):
        update_records(arguments.records, group)
        for note in group.notes:
            print(note)
    update_page(arguments.page, arguments.records, listed)


if __name__ == "__main__":
    main()
