"""Figures of the samplers.

research/results/scan_budgets.csv: `focus-eval simulate research/configs/simulation_scan.yaml`, then `python
research/scripts/equal_budgets.py results/runs/simulation_scan --baseline even_cover --out FILE`; scan_break_even.csv:
`python research/scripts/scan_break_even.py --out FOLDER --videos 12`; distinct.csv: `python
research/scripts/measure_distinct.py`; samplers.csv: columns of the tables that `focus-eval simulate
research/configs/simulation_samplers.yaml` writes.
"""

from __future__ import annotations

from focus_eval import VideoInfo, make_sampler
from focus_eval.lab.worlds import CHANNELS, CLIP_B32_OVER_BLIP_L
from tests.figures.rows import rounded, rows_of, signed, table, with_interval

from .results import RESULTS
from .worlds import interval

SAMPLERS = {
    "`uniform`": "uniform",
    "`focus`": "focus",
    "`focus_released`": "focus_released",
    "`topk`": "topk",
    "`aks`": "aks max_depth=3",
    "`bolt`": "bolt",
    "`wfs_sb`": "wfs_sb",
    "`qca`": "qca",
    "`qframe`": "qframe",
    "`mdp3`": "mdp3",
    "`maxinfo`": "maxinfo",
    "`ktv`": "ktv",
    "`subquestions`": "subquestions llm=scripted:accuracy=0.8",
    "`vlm_topk`": "vlm_topk llm=scripted:accuracy=0.8",
    "`even_cover`": "even_cover",
    "`even_cover`, `budget_of=focus`": "even_cover budget_of=focus",
    "`scan_cover`": "scan_cover (fair)",
    "`even_topk` (control)": "even_topk [control]",
    "`even_diverse` (control)": "even_diverse [control]",
}


def samplers():
    """Return docs/samplers.md's table of pulls in an hour of video, and of cost and recall in simulation."""
    rows = {(row["Benchmark"], row["K"], row["Sampler"]): row for row in rows_of(RESULTS / "samplers.csv")}
    hour = VideoInfo(108_000, 30.0)
    lines = []
    for name, label in SAMPLERS.items():
        row = rows["realistic", "8", label]
        spec = label.partition(" ")[0] + (":budget_of=focus" if "budget_of" in label else "")
        options = {"relative_cost": CLIP_B32_OVER_BLIP_L} if label.startswith("scan_cover") else {}
        pulls = make_sampler(spec, **options).count_pulls(hour, k=64)
        recalls = "/".join(rounded(rows["realistic", k, label]["2 s"]) for k in ("8", "32"))
        difference = signed(with_interval(row, "all (points)")) if row["all (points)"] else ""
        lines.append((name, f"{pulls:,}", f"{float(row['forward equivalents (%)']):.2f}", recalls, difference, ""))
    return [line.removesuffix(" |") for line in table(*lines)]


BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)


def at_budgets():
    """Return the simulation's rows by (K, budget in percent of the frames, sampler)."""
    rows = rows_of(RESULTS / "scan_budgets.csv")
    return {(row["K"], float(row["percent"]), row["sampler"]): row for row in rows}


def difference(row, sign=1):
    """Return (value, lower end, upper end) of a sampler less the baseline, in points.

    With `sign=-1`, of the baseline less the sampler.
    """
    value, *ends = (sign * float(row[f"minus baseline{end}"]) for end in ("", " low", " high"))
    return value, *sorted(ends)


def even_budgets():
    """Return docs/even_cover.md's table and sentence on what even_cover finds, and gains over focus, by budget.

    Fails if an interval that should hold 0 does not.
    """
    rows = at_budgets()
    lines = []
    for percent in BUDGETS:
        cells = []
        for k in ("8", "32"):
            cells += [
                f"{float(rows[k, percent, 'even_cover']['recall']):.1f}",
                interval(*difference(rows[k, percent, "focus"], -1)),
            ]
        lines.append((f"{percent:g}", *cells))
    even = [difference(rows[k, percent, "even_diverse"], -1) for k in ("8", "32") for percent in BUDGETS]
    likely = [difference(rows[k, p, "even_cover density=likelihood_ratio"]) for k in ("8", "32") for p in BUDGETS]
    assert all(low < 0 < high for _, low, high in (*even, *likely))
    lowest, *_, highest = sorted(value for value, _, _ in even)
    return [*table(*lines), f"differences lie between {lowest:+.1f} and {highest:+.1f} points"]


def scan_budgets():
    """Return docs/scan_cover.md's table of recall at K = 8 by budget, and of what three kinds of scan change.

    Fails if, with a good scan, the main encoder adds 3 points or more.
    """
    rows = at_budgets()
    lines = [("`even_cover`, recall", *(f"{float(rows['8', p, 'even_cover']['recall']):.1f}" for p in BUDGETS))]
    for name, scan in (("fair", "(.3, .6)"), ("good", "(.5, 1)"), ("useless", "(0, 0)")):
        figures = [rows["8", p, f"scan_cover scan_encoder={name}"] for p in BUDGETS]
        channel = CHANNELS[name]
        assert [float(value) for value in scan.strip("()").split(", ")] == [channel.rho, channel.q]
        lines.append((f"{name} {scan}", *(interval(*difference(row)) for row in figures)))
    for k in ("8", "32"):  # with a good scan the main encoder adds nothing
        for p in BUDGETS:
            scan_only, scan_cover = (rows[k, p, f"{name} scan_encoder=good"] for name in ("scan_only", "scan_cover"))
            assert abs(float(scan_only["recall"]) - float(scan_cover["recall"])) < 3
    spent = float(rows["8", 4.0, "scan_cover scan_encoder=fair"]["forwards (%)"])
    return [*table(*lines), f"Of 4 % of the frames `scan_cover` spends {spent:.1f} %."]


def break_even():
    """Return docs/scan_cover.md's sentences on the correlation from which a scan pays.

    It pays if the interval at K = 8 lies above 0; the sentences are on the cheapest and the most expensive scan.
    """
    sure = {}
    for row in rows_of(RESULTS / "scan_break_even.csv"):
        if row["k"] == "8":
            at = f"1/{1 / float(row['cost']):.0f}", float(row["percent"])
            values = sure.setdefault(at, [])
            if float(row["low"]) > 0:
                values.append(float(row["rho"]))
    assert not sure["1/3", 0.25]
    minima = {cost: [min(sure[cost, p]) for p in BUDGETS[:4] if sure[cost, p]] for cost in ("1/43", "1/3")}
    return [
        f"Up to {BUDGETS[3]:g} % of the frames it pays from a correlation of {min(minima['1/43'])} to "
        f"{max(minima['1/43'])} on for a scan at 1/43",
        f"from {min(minima['1/3'])} to {max(minima['1/3'])} at 1/3",
        f"and never at {BUDGETS[0]} % there",
    ]


def distinct():
    """Return docs/samplers.md's sentence on what the option `distinct` changes on the demo and in made videos.

    Fails if it replaces a keyframe in a simulated world, or if a difference of recall has an interval without 0.
    """
    rows = {(row["data"], row["sampler"]): row for row in rows_of(RESULTS / "distinct.csv")}
    assert {float(row["replaced"]) for (data, _), row in rows.items() if data.startswith("world ")} == {0.0}
    demo = {sampler: row for (data, sampler), row in rows.items() if data == "demo"}
    assert all(float(row["low"]) < 0 < float(row["high"]) for row in demo.values())
    lowest, *_, highest = sorted(float(row["difference"]) for row in demo.values())
    topk, scenes = demo["topk"], rows["ten videos of photographs", "topk"]
    return [
        f"recall on the demo's former, longer videos changes by {lowest:+.1f} to {highest:+.1f} points over "
        f"{len(demo)} samplers, every interval with 0. `topk` gets {topk['replaced']} of its 8 keyframes replaced, and "
        f"{scenes['with']} scenes of photographs in place of {scenes['without']}."
    ]


def snap():
    """Return docs/samplers.md's sentence on what `snap_seconds` changes with the demo's encoder.

    Fails if another sampler's keyframes moved, or if recall changed.
    """
    (row,) = (row for row in rows_of(RESULTS / "demo_snap.csv") if row["moved"] != "0")
    assert row["sampler"] == "even_cover pulls=600"
    recalls = [row[f"{name} with"] for name in ("recall@1", "recall@2", "recall@5")]
    assert recalls == [row[f"{name} without"] for name in ("recall@1", "recall@2", "recall@5")]
    return [
        f"{row['moved']} of 800 keyframes move, in {row['questions']} questions, and recall within 1, 2 and 5 s stays "
        f"{recalls[0]}, {recalls[1]} and {recalls[2]}."
    ]


FIGURES = {
    "break_even": break_even,
    "distinct": distinct,
    "even_budgets": even_budgets,
    "samplers": samplers,
    "scan_budgets": scan_budgets,
    "snap": snap,
}
