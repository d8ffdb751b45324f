"""Figures of the intervals, of the machine and of the comparisons with the authors' code."""

from __future__ import annotations

import json

import yaml

from ..pages import ROOT
from .rows import PAPER, PUBLISHED, rows_of, table


def numbers(name, *columns):
    """Return the numbers in these columns of results/published/statistics_NAME.csv, without what follows them.

    A cell such as "94.8 [94.1, 95.4]" counts as 94.8; empty cells and "–" are left out.
    """
    texts = [row[column] for row in rows_of(PUBLISHED / f"statistics_{name}.csv") for column in columns]
    return [float(text.split()[0]) for text in texts if text and text != "–"]


# Columns of results/published/statistics_NAME.csv with shares of runs in which an interval covers the truth.
COVERAGE = (
    ("means", ("p = .5", "p = .8", "p = .95")),
    (
        "differences",
        (
            "no difference",
            "6 points lost, uneven over videos",
            "18 points lost, uneven",
            "p = .95, 5 points lost, uneven",
        ),
    ),
    ("types", ("p = .5", "p = .8", "a difference, p = .6")),
    ("groups", ("CR2, Satterthwaite",)),
    ("unequal", ("interval covers (%)",)),
)


def coverage():
    """Return docs/statistics.md's sentences on the least and the greatest share of each simulation of coverage."""
    covered = [value for name, columns in COVERAGE for value in numbers(name, *columns)]
    below, arrows, equal, wrong, detected, even, half, quarter, large = (
        f"{min(shares):.1f} to {max(shares):.1f}"
        for shares in (
            numbers("unequal", "p below .05 (%)"),
            numbers("unequal", "an arrow (%)"),
            numbers("equal", "sign-flip rejects (%)"),
            numbers("looks", "something wrong stated (%)"),
            numbers("power", "found (%)"),
            numbers("gains", "all videos gain (%)", "all videos gain, of ten (%)"),
            *(numbers("gains", f"{name} gain (%)") for name in ("half of them", "a quarter of them", "large ones")),
        )
    )
    looks, pairs = (
        f"{min(shares):.0f} to {max(shares):.0f}"
        for shares in (
            numbers("chances", "four looks (%)"),
            numbers("chances", "ten pairs (%)", "ten rivals of one sampler (%)"),
        )
    )
    return [
        f"Over all cases an interval covers the truth in {min(covered):.1f} to {max(covered):.1f} percent of the runs.",
        f"Equal samplers have a p below .05 in {equal} percent; where videos have very different numbers of questions "
        f"in {below}, and an arrow in {arrows}. A verdict on six rivals is wrong in {wrong}. A difference that should "
        f"be found in 80 is found in {detected}; as an arrow, where all videos gain alike, in {even}; where half of "
        f"the videos gain in {half}, where a quarter gain in {quarter}, and where only those with the larger half of "
        f"very unequal numbers of questions gain in {large}. Four looks at a growing run without a difference show an "
        f"arrow at least once in {looks} percent, ten separate `compare` calls in {pairs}.",
    ]


def gpu_hours():
    """Return docs/performance.md's table of pulls on LongVideoBench and their GPU hours, estimated and measured."""
    estimated, measured = (
        yaml.safe_load((ROOT / f"configs/machines/{name}.yaml").read_text())["frames_per_second"]["blip"]
        for name in ("eight_h100", "h200")
    )
    rates = [of[precision] for precision in ("fp32", "tf32", "bf16") for of in (estimated, measured)]
    hours = {f"focus, alpha {row['alpha'][1:]}": row["gpu_hours"] for row in rows_of(PAPER / "alpha.csv")}
    published = {row["method"]: row["gpu_hours"] for row in rows_of(PAPER / "efficiency.csv")}
    hours |= {"aks": published["aks"], "aks_dense": published["aks_no_prefilter"]}
    lines = []
    for name, pulls in PULLS.items():
        at_rates = [pulls / rate / 3600 for rate in rates]
        lines.append((name, f"{pulls:,}", hours[name], *(f"{value:.{1 if value > 10 else 2}f}" for value in at_rates)))
    return table(*lines)


PULLS = {
    "focus, alpha .1": 307_570,
    "focus, alpha .25": 446_610,
    "focus, alpha .5": 688_222,
    "aks": 998_211,
    "aks_dense": 26_784_474,
}


def recorded():
    """Return docs/fidelity.md's table of the cases recorded from the authors' code.

    A test of its sampler compares each case.
    """
    sentences = {
        ("focus_released", "focus_released_rounding"): "pulled frames in order, keyframes; {} with arms and scores",
        ("aks",): "keyframes",
        ("wfs_sb",): "peaks, kept segments, budgets, keyframes",
        ("qca",): "weights within 2e-6, budgets, keyframes",
    }
    lines = []
    for names, sentence in sentences.items():
        cases = [case for name in names for case in json.loads((ROOT / f"tests/recorded/{name}.json").read_text())]
        with_arms = sum("arms" in case for case in cases)
        lines.append((f"`{names[0]}`", sentence.format(with_arms), f"{len(cases)} of {len(cases)}"))
    return table(*lines)


FIGURES = {"coverage": coverage, "gpu_hours": gpu_hours, "recorded": recorded}
