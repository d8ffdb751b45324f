"""Every figure between `<!-- figures: NAME -->` and `<!-- end -->` in README and docs follows from recorded rows.

The tables of docs/field.md and docs/leaderboard.md have marks and tests of their own (tests/test_field.py,
tests/registry/test_replayed.py).
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal

import pytest
import yaml

from focus_eval import make_sampler
from focus_eval.benchmarks.registry import read_rates
from focus_eval.simulation.evidence_shapes import EVIDENCE_SHAPES

from .pages import PAGES, ROOT

PUBLISHED, PAPER = ROOT / "results/published", ROOT / "results/paper"
MARKED = re.compile(r"<!-- figures: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def marked():
    return [(page.name, *found) for page in PAGES for found in MARKED.findall(page.read_text(encoding="utf-8"))]


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(*lines):
    return [f"| {' | '.join(line)} |" for line in lines]


def interval(value, low, high, digits=1):
    """E.g. "+5.1 [1.0, 9.2]"."""
    return f"{value:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def moments(row):
    return [float(row[name]) for name in ("moments", "moments_low", "moments_high")]


def stretch_map():
    """Cells of the map whose interval lies above and below 0."""
    cells = [moments(row) for row in rows_of(PUBLISHED / "stretch_map.csv")]
    ahead, behind = sum(low > 0 for _, low, _ in cells), sum(high < 0 for _, _, high in cells)
    least = min(value for value, _, _ in cells)
    return [
        f"FOCUS's pulls are ahead in {ahead} cells, little more than chance would give, and behind in {behind}, "
        f"by up to {-least:.0f} points."
    ]


def event_lengths():
    """The least and the most of the differences over all lengths, worlds and K."""
    cells = [moments(row) for row in rows_of(PUBLISHED / "event_lengths.csv")]
    above, below = sum(low > 0 for _, low, _ in cells), sum(high < 0 for _, _, high in cells)
    assert below == 0
    return [
        "at every length from 1 s to 300 s: the least is "
        f"{interval(*min(cells))}, the most {interval(*max(cells))}; {above} of {len(cells)} intervals are above 0 "
        "and none below.",
        "Within 2 s of a moment",
    ]


def numbers(name, *columns):
    """The figures of these columns of a table of coverage; a bracket behind one is another figure."""
    texts = [row[column] for row in rows_of(PUBLISHED / f"statistics_{name}.csv") for column in columns]
    return [float(text.split()[0]) for text in texts if text and text != "–"]


COVERAGE = {
    "`means`: an accuracy's interval covers (%), 5 to 300 videos": ("p = .5", "p = .8", "p = .95"),
    "`differences`: a paired difference's interval covers (%), 12 to 300 videos": (
        "no difference",
        "6 points lost, uneven over videos",
        "18 points lost, uneven",
        "p = .95, 5 points lost, uneven",
    ),
    "`types`: an interval over 6 to 12 task types with few questions covers (%)": (
        "p = .5",
        "p = .8",
        "a difference, p = .6",
    ),
    "`groups`: a difference between groups covers (%), 5 to 50 videos on one side": ("CR2, Satterthwaite",),
    "`unequal`: an interval covers (%), videos of very unequal size, skewed differences": ("interval covers (%)",),
    "`unequal`: equal samplers told apart (%)": ("told apart (%)",),
    "`equal`: equal samplers told apart (%), 1 to 5 seeds": ("sign-flip rejects (%)",),
    "`looks`: a verdict with up to four looks and six rivals states something wrong (%)": (
        "something wrong stated (%)",
    ),
    "`power`: the minimum detectable difference is found (%); 80 is right": ("found (%)",),
}


def coverage():
    """The range of each table that scripts/statistics_coverage.py writes."""
    found = {what: numbers(what.split("`")[1], *columns) for what, columns in COVERAGE.items()}
    return table(*((what, str(len(of)), f"{min(of):.1f}", f"{max(of):.1f}") for what, of in found.items()))


def gpu_hours():
    """Pulls on LongVideoBench over the stated rates, beside the paper's hours."""
    rates = yaml.safe_load((ROOT / "configs/machines/eight_h100.yaml").read_text())["frames_per_second"]["blip"]
    hours = {f"focus, alpha {row['alpha'][1:]}": row["gpu_hours"] for row in rows_of(PAPER / "alpha.csv")}
    published = {row["method"]: row["gpu_hours"] for row in rows_of(PAPER / "efficiency.csv")}
    hours |= {"aks": published["aks"], "aks_dense": published["aks_no_prefilter"]}
    planned = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    lines = []
    for name, pulls in PULLS.items():
        assert f"{pulls:,}" in planned
        made = [pulls / rates[precision] / 3600 for precision in ("fp32", "tf32")]
        lines.append((name, f"{pulls:,}", hours[name], *(f"{value:.{1 if value > 10 else 2}f}" for value in made)))
    return table(*lines)


PULLS = {
    "focus, alpha .1": 307_570,
    "focus, alpha .25": 446_610,
    "focus, alpha .5": 688_222,
    "aks": 998_211,
    "aks_dense": 26_784_474,
}


@pytest.mark.parametrize("name", PULLS)
def test_the_pulls_on_longvideobench_are_what_the_samplers_count(name, shared):
    videos = Counter(rate.info for rate in read_rates(shared("data/lvb_val_fps.csv")).values())
    if name == "aks_dense":  # every frame; running it over 27 million takes longer than all others together
        assert sum(video.n_frames * count for video, count in videos.items()) == PULLS[name]
        return
    sampler = make_sampler(name.replace(", alpha ", ":alpha="))
    assert sum(sampler.count_pulls(video, k=64) * count for video, count in videos.items()) == PULLS[name]


def rounded(text):
    """One decimal, halves up, as reports print."""
    return str(Decimal(text).quantize(Decimal("0.1"), ROUND_HALF_UP))


def with_interval(row, column):
    """E.g. "5.1 [1.0, 9.2]"."""
    value, low, high = (rounded(row[name]) for name in (column, f"{column} low", f"{column} high"))
    return f"{value} [{low}, {high}]"


def demo_rows():
    """The tables of the demo's run by sampler: K = 8, and recall at every K."""
    return tuple(
        {row["Sampler"]: row for row in rows_of(PUBLISHED / f"demo_{name}.csv")} for name in ("k8", "recall_by_k")
    )


def percent(row, column):
    value = float(row[column])
    return f"{value:.2f} %" if value else "0"


DEMO = {
    "uniform": "uniform",
    "topk, one frame a second": "topk",
    "focus": "focus",
    "even_cover (ours), as many pulls as focus": "even_cover budget_of=focus",
}


def demo():
    """The README's table, and what even_cover gains."""
    at_8, by_k = demo_rows()
    lines = []
    for name, label in DEMO.items():
        row = at_8[label]
        recalls = (with_interval(row, "recall within 2 s (%)"), with_interval(by_k[label], "K = 32"))
        lines.append((name, percent(row, "forward equivalents (%)"), *recalls, with_interval(row, "accuracy (%)")))
    ceiling = with_interval(at_8["oracle [ceiling]"], "accuracy (%)")
    return table(*lines, ("oracle: the annotated frames", "0", "100", "–", ceiling))


def demo_gain():
    """What even_cover gains over focus, and what finding the evidence adds."""
    gain = with_interval(demo_rows()[0]["even_cover budget_of=focus"], "minus focus")
    (effect,) = rows_of(PUBLISHED / "demo_effect.csv")
    return [
        f"finds {gain} points more at K = 8",
        f"On the {effect['questions']} questions where some samplers found the evidence and others did not, finding it "
        f"raised accuracy by {with_interval(effect, 'points')} points.",
    ]


TWO_ENCODERS = {
    "even_cover, a quarter of focus's pulls": "even_cover",
    "scan_cover": "scan_cover (offline)",
    "even_cover, as many as focus": "even_cover budget_of=focus",
    "scan_cover, share=0.01": "scan_cover (offline) share=0.01",
    "focus": "focus",
}


def two_encoders():
    """What scan_cover finds, and at what cost, on the demo."""
    at_8, by_k = demo_rows()
    costs = ("forward equivalents (%)", "frames scored (%)")
    lines = []
    for name, label in TWO_ENCODERS.items():
        recalls = (rounded(by_k[label][column]) for column in ("K = 8", "K = 32"))
        lines.append((name, *(percent(at_8[label], cost) for cost in costs), *recalls))
    return table(*lines)


def simulated():
    """Recall within 2 s of the shipped simulation, and its differences to focus."""
    recalls, differences = (
        {(row["K"], row["Sampler"]): row for row in rows_of(PUBLISHED / f"simulation_{name}.csv")}
        for name in ("recall", "by_length")
    )
    lines = []
    for k, name in recalls:
        if k == "8" and not name.startswith(SWEPT):
            cells = [f"{float(recalls[k, name]['frames scored (%)']):.2f}"]
            for at in ("8", "32"):
                less = differences.get((at, name))
                cells += [
                    rounded(recalls[at, name]["2 s"]),
                    signed(with_interval(less, "all (points)")) if less else "",
                ]
            lines.append((name.replace("[", "(").replace("]", ")"), *cells))
    return table(*lines)


# Budgets that the frontier needs and the table leaves out.
SWEPT = ("focus clip_seconds=", "even_cover share=", "even_diverse every_seconds=")


def signed(text):
    return text if text.startswith("-") else f"+{text}"


def uneven_lead():
    """What even_topk gains over focus by length at K = 8, and uniform in short videos at K = 32."""
    rows = {(row["K"], row["Sampler"]): row for row in rows_of(PUBLISHED / "simulation_by_length.csv")}
    gains = [f"{float(rows['8', 'even_topk [control]'][name]):.0f}" for name in ("short", "medium", "long", "hours")]
    uniform = float(rows["32", "uniform"]["short"])
    return [
        "In videos under 3 minutes with K = 32, `uniform`, which scores no frame, finds "
        f"{uniform:.0f} points more than `focus`",
        f"(K = 8, `even_topk`: {', '.join(gains[:3])} and {gains[3]} points from under 3 minutes to above an hour)",
    ]


COST_EXAMPLE = {
    "even grid, as many pulls as `focus`": "even_diverse [control]",
    "`topk`, one frame a second": "topk",
    "`focus`": "focus",
}


def cost_example():
    """Pulls and frames encoded of the demo's run, added over its questions."""
    rows = {row["Sampler"]: row for row in rows_of(PUBLISHED / "demo_pulls.csv")}
    lines = []
    for name, label in COST_EXAMPLE.items():
        frames, pulls, encoded = (float(rows[label][column]) for column in ("n_frames", "n_pulls", "n_encoded"))
        share = f"{encoded:,.0f} ({encoded / pulls:.3f})".replace("(0.", "(.")
        lines.append((name, f"{pulls:,.0f}", f"{pulls / frames:.2%}", share, f"{encoded / frames:.2%}"))
    return [line.replace("%", " %") for line in table(*lines)]


def field_row(mark, first):
    """The cells of a row of docs/field.md, whose tables tests/test_field.py derives from the public files."""
    page = (ROOT / "docs/field.md").read_text(encoding="utf-8")
    part = page.partition(f"<!-- field: {mark} -->")[2].partition("<!-- end -->")[0]
    (row,) = re.findall(rf"^\| {re.escape(first)} \|.*$", part, re.MULTILINE)
    return [cell.strip().removeprefix("+") for cell in row.strip("|").split("|")]


def ascs(measure):
    """ASCS less AKS at K = 64 in points, without its sign."""
    (row,) = [
        row
        for row in rows_of(ROOT / "registry/differences.csv")
        if (row["k"], row["name"], row["less"], row["measure"]) == ("64", "ASCS", "AKS", measure)
    ]
    value, *ends = (100 * float(row[name]) for name in ("value", "low", "high"))
    low, high = sorted(abs(end) for end in ends)
    return f"{abs(value):.1f} [{low:.1f}, {high:.1f}]"


def answers():
    """What the README says of real models' answers."""
    within, short, medium = (
        field_row("within", "recall@1"),
        field_row("lengths", "below 180 s"),
        field_row("lengths", "180 to 1200 s"),
    )
    loss = re.sub(r"-(.*) \[-(.*), -(.*)\]", r"\1 [\3, \2]", short[-1])
    return [
        "With a keyframe within a second of the evidence the same question is right "
        f"{within[1]} points more often (Qwen2.5-VL-7B, LongVideoBench, videos of 180 s and more, 22 selections, 20 of "
        f"them variants of one method); between uniform and AKS alone, {within[4]}.",
        f"AKS loses {loss} points to uniform frames on short videos**, and wins {medium[-1]} at 3 to 20 minutes.",
        f"ASCS is {ascs('within 1 s')} points behind AKS within 1 s of the evidence, {ascs('within 5 s')} ahead within "
        "5 s",
    ]


def recorded():
    """The cases recorded from the authors' code, each of which a test of its sampler compares."""
    said = {
        "focus_released": ("`focus_released`", "coarse list, fine list, arms and scores to the last bit, frames"),
        "focus_released_rounding": (
            "`focus_released`",
            "the same lists where the order of a rounding, or the solver of `rbf`, decides",
        ),
        "aks": ("`aks`", "frames"),
        "wfs_sb": ("`wfs_sb`", "peaks, kept segments, budgets, frames"),
        "qca": ("`qca`", "weights of content and of the question (within 2e-6), budgets, frames"),
    }
    counts = {name: str(len(json.loads((ROOT / f"tests/recorded/{name}.json").read_text()))) for name in said}
    return table(*((*about, counts[name], counts[name]) for name, about in said.items()))


def shapes():
    """The quantiles that the world `realistic` draws from, rounded; its 1 % quantile is not shown."""
    rows = (("CG-Bench mini", "cgbench", 0), ("LVBench", "lvbench", None), ("VUE-TR-V2", "vue_tr_v2", 0))
    lines = []
    for name, key, at in (*rows, ("LongVideoBench, under 3 min", "longvideobench", 0)):
        shape = EVIDENCE_SHAPES[key]
        span = "" if at is None else quantiles(shape.spans[at][1])
        counts = " / ".join(f"{count:.2f}".removeprefix("0").removesuffix(".00") for count in shape.counts)
        lines.append((name, quantiles(shape.seconds), span, counts))
    below, above = (quantiles(span) for _, span in EVIDENCE_SHAPES["longvideobench"].spans[1:])
    longer = (("3 to 20 min", "the same", below, "the same"), ("above 20 min", "the same", above, "the same"))
    return table(*lines, *longer)


def quantiles(seconds):
    return " / ".join(f"{value:,.0f}" for value in seconds[1:])


FIGURES = {
    "answers": answers,
    "cost_example": cost_example,
    "coverage": coverage,
    "demo": demo,
    "demo_gain": demo_gain,
    "event_lengths": event_lengths,
    "gpu_hours": gpu_hours,
    "recorded": recorded,
    "shapes": shapes,
    "simulated": simulated,
    "stretch_map": stretch_map,
    "two_encoders": two_encoders,
    "uneven_lead": uneven_lead,
}


@pytest.mark.parametrize(("page", "name", "text"), marked())
def test_a_marked_figure_follows_from_recorded_rows(page, name, text):
    """Each derived text stands between the marks, and no figure stands there beside them; a table's head is free."""
    left = re.sub(r"\A\|.*\n\|[-:|]+\n", "", text)
    left = " ".join(left.split())
    for derived in (" ".join(line.split()) for line in FIGURES[name]()):
        assert derived in left
        left = left.replace(derived, "")
    assert re.findall(r"\d", left) == []


def test_every_derivation_has_its_place():
    assert {name for _, name, _ in marked()} == {*FIGURES}
