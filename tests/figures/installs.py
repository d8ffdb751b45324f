"""Figures of the installation."""

from __future__ import annotations

from .rows import PUBLISHED, rows_of

MEASURED = PUBLISHED.parent / "measured"


def measured_installs(unit):
    """Return what each way of installing takes in `unit`, by its name in results/measured/install.csv."""
    rows = rows_of(MEASURED / "install.csv")
    return {row["what"]: float(row["value"]) for row in rows if row["unit"] == unit}


def gigabytes():
    """Return the gigabytes that each way of installing takes on disk, by its name."""
    return {name: mebibytes * 2**20 / 1e9 for name, mebibytes in measured_installs("MiB").items()}


def install():
    """Return docs/quickstart.md's table of the disk space that each way of installing takes."""
    size = gigabytes()
    return [
        f"`make setup` | {size['make setup']:.1f} GB |",
        f"weights above | {size['offline']:.1f} GB |",
        f"`pip install .` | {size['plain']:.1f} GB |",
    ]


def install_sizes():
    """Return the README's sentences on the disk space and the time of installing with and without PyTorch."""
    size, seconds = gigabytes(), measured_installs("s")
    return [
        f"Without PyTorch: {size['offline']:.1f} GB, and {seconds['offline']:.0f} s from the clone to a first picture",
    ]


FIGURES = {"install": install, "install_sizes": install_sizes}
