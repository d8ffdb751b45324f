"""Figures of the simulated worlds and of our samplers in them."""

from __future__ import annotations

import re

from scipy.stats import spearmanr

from tests.figures.rows import rows_of, table
from tests.figures.worlds import demo_rows

from .results import RESULTS


def interval(value, low, high, digits=1):
    """Return a difference with its interval, e.g. "+5.1 [1.0, 9.2]"."""
    return f"{value:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def moments(row):
    return [float(row[name]) for name in ("moments", "moments_low", "moments_high")]


def stretch_map():
    """Return docs/worlds.md's sentence on how many cells of the map have intervals above and below 0."""
    cells = [moments(row) for row in rows_of(RESULTS / "stretch_map.csv")]
    n_ahead, n_behind = sum(low > 0 for _, low, _ in cells), sum(high < 0 for _, _, high in cells)
    lowest = min(value for value, _, _ in cells)
    return [
        f"FOCUS's pulls are ahead in {n_ahead} cells, little more than chance would give, and behind in {n_behind}, "
        f"by up to {-lowest:.0f} points."
    ]


def stretch_corner():
    """Return docs/worlds.md's sentences on the corner of the map where FOCUS's pulls are ahead.

    The corner was simulated again, apart from the map. Fails unless every interval over 30 and 60 s lies above 0.

    Its videos are simulated anew; fails unless every interval over 30 and 60 s lies above 0.
    """
    rows = rows_of(RESULTS / "stretch_corner.csv")
    short = [moments(row) for row in rows if row["k"] == "16" and row["span_seconds"] in ("30", "60")]
    long = [moments(row)[0] for row in rows if row["k"] == "16" and row["span_seconds"] in ("120", "60-180")]
    highest = max(moments(row)[0] for row in rows if row["k"] == "32")
    assert len(short) == len(long) == 6
    assert min(low for _, low, _ in short) > 0
    return [
        f"over 30 and 60 s by {min(short)[0]:.1f} to {max(short)[0]:.1f} points at K = 16, every interval above 0; "
        f"over one to three minutes by {min(long):.1f} to {max(long):.1f}; at K = 32 by {highest:.1f} at most"
    ]


def realistic():
    """Return docs/worlds.md's table of differences between samplers with evidence of real lengths."""
    rows = {(row["pair"], row["k"]): moments(row) for row in rows_of(RESULTS / "realistic.csv")}
    pairs = dict.fromkeys(pair for pair, _ in rows)
    return table(*((pair, *(interval(*rows[pair, k]) for k in ("8", "16", "32"))) for pair in pairs))


def event_lengths():
    """Return docs/worlds.md's sentences on the least and the greatest difference over all lengths of events.

    Fails if an interval lies below 0.
    """
    cells = [moments(row) for row in rows_of(RESULTS / "event_lengths.csv")]
    n_above, n_below = sum(low > 0 for _, low, _ in cells), sum(high < 0 for _, _, high in cells)
    assert n_below == 0
    return [
        "at every length from 1 s to 300 s: the least is "
        f"{interval(*min(cells))}, the most {interval(*max(cells))}; {n_above} of {len(cells)} intervals are above 0 "
        "and none below.",
        "Within 2 s of a moment",
    ]


IN_BOTH = ("uniform", "topk", "aks max_depth=3", "focus", "even_cover",
           "even_cover budget_of=focus", "even_diverse [control]", "even_topk [control]")  # fmt: skip


def agreement():
    """Return docs/worlds.md's sentence on how alike the demo and the simulation rank samplers."""
    simulated = {(row["K"], row["Sampler"]): float(row["2 s"]) for row in rows_of(RESULTS / "simulation_recall.csv")}
    by_k = demo_rows()[1]
    lines = {}
    for k in ("8", "32"):
        labels = ["aks" if k == "32" and name.startswith("aks") else name for name in IN_BOTH]
        in_demo = [float(by_k[label][f"K = {k}"]) for label in labels]
        lines[k] = spearmanr(in_demo, [simulated[k, name] for name in IN_BOTH]).statistic
    return [
        f"Over {len(IN_BOTH)} samplers recall in the demo and in `calibrated` have a rank correlation of "
        f"{lines['8']:.2f} at K = 8 and {lines['32']:.2f} at K = 32."
    ]


def uneven_lead():
    """Return docs/samplers.md's sentences on where samplers are ahead of focus, by length of the video.

    uniform in short videos at K = 32, even_topk in videos of every length at K = 8.
    """
    rows = {(row["K"], row["Sampler"]): row for row in rows_of(RESULTS / "simulation_by_length.csv")}
    gains = [f"{float(rows['8', 'even_topk [control]'][name]):.0f}" for name in ("short", "medium", "long", "hours")]
    uniform = float(rows["32", "uniform"]["short"])
    return [
        "In videos under 3 minutes with K = 32, `uniform`, which scores no frame, finds "
        f"{uniform:.0f} points more than `focus`",
        f"(K = 8, `even_topk`: {', '.join(gains[:3])} and {gains[3]} points from under 3 minutes to above an hour)",
    ]


def world_orders():
    """Return docs/worlds.md's sentence on the pairs of published selections that two worlds order rightly."""
    recorded = rows_of(RESULTS / "world_orders.csv")
    rows = {(row["world"], row["kind"]): (int(row["agree"]), int(row["pairs"])) for row in recorded}
    seen_counts, blind_counts = (
        [sum(counts) for counts in zip(*(row for (name, _), row in rows.items() if name == world), strict=True)]
        for world in ("realistic", "realistic:blind=0.65")
    )
    kinds = {kind: "{} of {}".format(*row) for (world, kind), row in rows.items() if "blind" in world}
    return [
        f"`realistic` orders {seen_counts[0]} of {seen_counts[1]} pairs as the files do, "
        f"`realistic:blind=0.65` {blind_counts[0]}: {kinds['with uniform']} with uniform, "
        f"{kinds['AKS and WFS-SB']} of AKS and WFS-SB, "
        f"{kinds['two forms of AKS']} of two forms of AKS."
    ]


def validity():
    """Return docs/worlds.md's table that research/scripts/world_validity.py computes."""
    rows = rows_of(RESULTS / "worlds.csv")
    counts = {(row["benchmark"], "blind" in row["world"]): row["questions"] for row in rows}
    lines = [
        tuple(value.replace(" (fitted to these)", "") for name, value in row.items() if name != "questions")
        for row in rows
        if "seed" not in row["world"]
    ]
    return [
        f"{counts['longvideobench', False]} questions of LongVideoBench (videos from `180` s); "
        f"{counts['videomme', False]} of Video-MME (medium and long ones), "
        f"with `blind` every second one, {counts['videomme', True]},",
        *table(*lines),
    ]


def frontier():
    """Return the table of docs/scan_cover.md with recall, cost and near twins at equal total cost, over all worlds.

    Its last columns hold what the sampler under judgement gains.
    """
    rows = over_all("frontier")
    gains = [name for name in rows[0] if "less it" in name and "nearness" not in name]
    shown = ("1 s", "2 s", "5 s", "cost", "twins")
    return table(*(
        (f"`{row['sampler']}`", *(f"{float(row[name]):.1f}" for name in shown), *(row[name] for name in gains))
        for row in rows
    ))  # fmt: skip


TOLERANCES = ("1 s", "2 s", "5 s")


def over_all(name):
    return [row for row in rows_of(RESULTS / f"{name}.csv") if (row["world"], row["K"]) == ("all", "all")]


def frontier_mixtures():
    """Return docs/scan_cover.md's sentence on a mixture less the two samplers that it joins."""
    by_sampler = {row["sampler"]: row for row in over_all("frontier_mixtures")}
    cover_text, aks_text = (
        "{}, {} and {}".format(*(by_sampler[name][f"mixture, aks t1 .37 less it, {item}"] for item in TOLERANCES))
        for name in ("event_cover", "aks, t1 .37")
    )
    return [
        f"Its differences to `event_cover` alone are {cover_text} points within 1, 2 and 5 s, those to AKS alone "
        f"{aks_text}."
    ]


def frontier_select():
    """Return docs/scan_cover.md's sentence on what the default sampler gains within 2 s, by length of the video."""
    rows = [row for row in rows_of(RESULTS / "frontier_select.csv") if row["K"] == "all"]
    gains = {
        name: [row["even_cover less it, 2 s"] for row in rows if row["sampler"] == name and "all, " in row["world"]]
        for name in ("event_cover", "topk")
    }
    lengths = [row["world"] for row in rows if row["sampler"] == "topk" and "all, " in row["world"]]
    assert lengths == ["all, 1 to 6 min", "all, 6 to 32 min", "all, 32 to 179 min"]
    cover_gains, topk_gains = gains["event_cover"], gains["topk"]
    text = "{} points in videos of 1 to 6 minutes, {} up to 32 minutes and {} beyond".format(*cover_gains)
    return [
        f"`even_cover` less `event_cover` is {text}; less `topk` it is {', '.join(topk_gains[:2])} and {topk_gains[2]}."
    ]


def frontier_demo():
    """Return docs/scan_cover.md's sentences on recall on the demo at equal total cost, and what density=events gains.

    Fails unless its interval lies above 0 for exactly the samplers that the sentence names.
    """
    rows = [row for row in rows_of(RESULTS / "frontier_demo.csv") if row["K"] == "all"]
    settings = r" \(offline\)| \[.*\]| (share|every_seconds|max_depth)=[\d.]+"
    by_name = {re.sub(settings, "", row["sampler"]): row for row in rows}
    gains = {name: row["density=events less it, recall@2"] for name, row in by_name.items()}
    gains = {name: gain for name, gain in gains.items() if gain}
    sure_gains = {name: gain for name, gain in gains.items() if not gain.split("[")[1].startswith(("-", "0.0"))}
    assert set(sure_gains) == {"aks", "aks t1=0.37", "focus", "focus_cover", "topk"}
    least_gain = min(sure_gains.values(), key=first_number)
    unsure = sorted((gain for name, gain in gains.items() if name not in sure_gains), key=first_number)
    new_recall, old_recall = (
        f"{float(by_name[name]['recall@2']):.1f}" for name in ("scan_cover density=events", "event_cover")
    )
    return [
        f"Within 2 s `density=events` finds {new_recall} percent and `event_cover` {old_recall}. The first is ahead of "
        f"`aks`, `focus`, `focus_cover` and `topk`, by {least_gain} points or more; its differences "
        f"to the other {len(unsure)}, {unsure[0].split()[0]} to {unsure[-1].split()[0]} points, may be chance."
    ]


def first_number(text):
    return float(text.split()[0])


def budget_gains():
    """Return the sentence of docs/scan_cover.md on `density=events` at small budgets, and its recall at a large one.

    Fails unless it is surely ahead of every sampler of one encoder at every tolerance there.
    """
    rows = rows_of(RESULTS / "frontier_budgets.csv")
    gains = {
        (row["budget"], row["sampler"]): [row[f"density=events less it, {item}"] for item in ("1 s", "2 s", "5 s")]
        for row in rows
    }
    one_encoder = [texts for (budget, name), texts in gains.items() if budget in (".5 %", "1 %") and "scan" not in name]
    assert len(one_encoder) == 12
    assert all("[" in text and not text.split("[")[1].startswith("-") for texts in one_encoder for text in texts)
    first, second, last = gains[".5 %", "event_cover"]
    new_recall, old_recall = (
        f"{float(row['2 s']):.1f}"
        for name in ("scan_cover, density=events", "event_cover")
        for row in rows
        if (row["budget"], row["sampler"]) == ("4 %", name)
    )
    return [
        "At .5 and 1 % `density=events` is ahead of every sampler of one encoder within 1, 2 and 5 s, and every "
        f"interval lies above 0: of `event_cover` by {first}, {second} and {last} points at .5 %. At 4 % "
        f"`event_cover` finds as much: {old_recall} percent within 2 s, `density=events` {new_recall}.",
    ]


FIGURES = {
    "agreement": agreement,
    "frontier": frontier,
    "frontier_mixtures": frontier_mixtures,
    "budget_gains": budget_gains,
    "frontier_demo": frontier_demo,
    "frontier_select": frontier_select,
    "validity": validity,
    "world_orders": world_orders,
    "event_lengths": event_lengths,
    "realistic": realistic,
    "stretch_corner": stretch_corner,
    "stretch_map": stretch_map,
    "uneven_lead": uneven_lead,
}
