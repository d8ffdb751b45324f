"""Figures of the installation and of the samplers.

results/published/scan_sums.csv is written from the run of `focus-eval simulate configs/simulation_scan.yaml`.
"""

from __future__ import annotations

from .rows import PUBLISHED, rows_of

MEASURED = PUBLISHED.parent / "measured"


def gigabytes():
    """Disk that an installation takes, by its name in results/measured/install.csv."""
    rows = rows_of(MEASURED / "install.csv")
    assert {row["unit"] for row in rows} == {"MiB"}
    return {row["what"]: float(row["value"]) * 2**20 / 1e9 for row in rows}


def install():
    """The table of the quickstart."""
    size = gigabytes()
    return [
        f"`make setup` | {size['make setup']:.1f} GB |",
        f"weights below | {size['offline']:.1f} GB |",
        f"`pip install .` | {size['plain']:.1f} GB |",
    ]


def install_sizes():
    """What the README says of the two ways to install."""
    size = gigabytes()
    return [f"({size['make setup']:.0f} GB with PyTorch)", f"Without PyTorch ({size['offline']:.1f} GB)"]


FIGURES = {"install": install, "install_sizes": install_sizes}
