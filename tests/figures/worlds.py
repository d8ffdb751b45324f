"""Figures of the demo, the simulation and the samplers."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from scipy.stats import spearmanr

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.encoders.cost import blip_gmacs, dual_encoder_gmacs, efficientnet_lite0_gmacs
from focus_eval.keyframes.encoders.offline import FULL_SIZE
from focus_eval.keyframes.encoders.registry import read_encoder

from .rows import PUBLISHED, percent, rounded, rows_of, signed, table, with_interval


def interval(value, low, high, digits=1):
    """Return a difference with its interval, e.g. "+5.1 [1.0, 9.2]"."""
    return f"{value:+.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def moments(row):
    return [float(row[name]) for name in ("moments", "moments_low", "moments_high")]


def stretch_map():
    """Return docs/simulation.md's sentence on how many cells of the map have intervals above and below 0."""
    cells = [moments(row) for row in rows_of(PUBLISHED / "stretch_map.csv")]
    n_ahead, n_behind = sum(low > 0 for _, low, _ in cells), sum(high < 0 for _, _, high in cells)
    lowest = min(value for value, _, _ in cells)
    return [
        f"FOCUS's pulls are ahead in {n_ahead} cells, little more than chance would give, and behind in {n_behind}, "
        f"by up to {-lowest:.0f} points."
    ]


def stretch_corner():
    """Return docs/simulation.md's sentences on the corner of the map where FOCUS's pulls are ahead.

    The corner was simulated again, apart from the map. Fails unless every interval over 30 and 60 s lies above 0.

    Its videos are simulated anew; fails unless every interval over 30 and 60 s lies above 0.
    """
    rows = rows_of(PUBLISHED / "stretch_corner.csv")
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
    """Return docs/simulation.md's table of differences between samplers with evidence of real lengths."""
    rows = {(row["pair"], row["k"]): moments(row) for row in rows_of(PUBLISHED / "realistic.csv")}
    pairs = dict.fromkeys(pair for pair, _ in rows)
    return table(*((pair, *(interval(*rows[pair, k]) for k in ("8", "16", "32"))) for pair in pairs))


def event_lengths():
    """Return docs/simulation.md's sentences on the least and the greatest difference over all lengths of events.

    Fails if an interval lies below 0.
    """
    cells = [moments(row) for row in rows_of(PUBLISHED / "event_lengths.csv")]
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
    """Return docs/simulation.md's sentence on how alike the demo and the simulation rank samplers."""
    simulated = {(row["K"], row["Sampler"]): float(row["2 s"]) for row in rows_of(PUBLISHED / "simulation_recall.csv")}
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


def demo_rows():
    """Return (rows at K = 8, rows of recall at every K) of the demo's run, each by sampler."""
    return tuple(
        {row["Sampler"]: row for row in rows_of(PUBLISHED / f"demo_{name}.csv")} for name in ("k8", "recall_by_k")
    )


def demo_gain():
    """Return the README's sentences on what even_cover gains over focus, and what finding the evidence adds."""
    rows = demo_rows()[0]
    gain, of_topk = (
        with_interval(rows[name], "minus focus") for name in ("even_cover budget_of=focus", "even_topk [control]")
    )
    (effect,) = rows_of(PUBLISHED / "demo_effect.csv")
    return [
        f"finds {gain} points more at K = 8",
        f"of the same even frames already finds {of_topk} more",
        f"On the {effect['questions']} questions where some samplers found the evidence and others did not, finding it "
        f"raised accuracy by {with_interval(effect, 'points')} points.",
    ]


DEMO_SAMPLERS = {
    "blind (floor)": ("blind [floor]", "blind [floor]"),
    "uniform": ("uniform", "uniform"),
    "topk, one frame a second": ("topk", "topk"),
    "aks (depth 3 at K = 8)": ("aks max_depth=3", "aks"),
    "focus": ("focus", "focus"),
    "even_topk, as many pulls as focus": ("even_topk [control]", "even_topk [control]"),
    "even_diverse, as many": ("even_diverse [control]", "even_diverse [control]"),
    "even_cover, as many": ("even_cover budget_of=focus", "even_cover budget_of=focus"),
    "even_cover": ("even_cover", "even_cover"),
    "scan_cover": ("scan_cover (offline)", "scan_cover (offline)"),
    "scan_cover, share=0.01": ("scan_cover (offline) share=0.01", "scan_cover (offline) share=0.01"),
    "oracle (ceiling)": ("oracle [ceiling]", "oracle [ceiling]"),
}


def demo_samplers():
    """Return docs/demo.md's table of every sampler."""
    at_8, by_k = demo_rows()
    lines = []
    for name, (label, at_32) in DEMO_SAMPLERS.items():
        row, last = at_8[label], by_k[at_32]["K = 32"]
        lines.append(
            (
                name,
                percent(row, "forward equivalents (%)"),
                rounded(row["recall within 2 s (%)"]),
                signed(with_interval(row, "minus focus")) if row["minus focus"] else "",
                rounded(last) if last else "–",
                rounded(row["accuracy (%)"]),
            )
        )
    return table(*lines)


# Most that a smaller input of the demo's encoder may lose, in points.
MOST_LOST = 2


def demo_encoder_sizes():
    """Return docs/demo.md's sentence on the encoder at the sizes of its input that the demo uses.

    Fails unless the demo selects at the smallest size that keeps recall, and answers at that which keeps accuracy.
    """
    by_size = {int(row["size"]): row for row in rows_of(PUBLISHED / "demo_encoder_sizes.csv")}
    whole_row = by_size[FULL_SIZE]
    smallest = {
        column: min(size for size, row in by_size.items() if float(row[column]) >= float(whole_row[column]) - MOST_LOST)
        for column in ("topk_recall", "oracle_accuracy")
    }
    matrix = load_matrix(resource_path("configs") / "demo.yaml")
    (encoder,), (model,) = matrix.encoders, matrix.models
    _, answerer_options = read_encoder(str(model.args["answer_encoder"]), {})
    assert int(encoder.options.get("size", FULL_SIZE)) == smallest["topk_recall"]
    assert int(answerer_options.get("size", FULL_SIZE)) == smallest["oracle_accuracy"]
    small_row = by_size[smallest["topk_recall"]]
    assert [smallest["topk_recall"], smallest["oracle_accuracy"]] == [96, 224]
    recalls, accuracies = (
        [rounded(row[column]) for row in (whole_row, small_row)] for column in ("topk_recall", "oracle_accuracy")
    )
    return [
        f"With 96 pixels, {float(small_row['work']):.2f} of the work of 224, `topk` finds {recalls[1]} percent at "
        f"K = 8 in place of {recalls[0]}; accuracy at the evidence falls from {accuracies[0]} to {accuracies[1]}."
    ]


def uneven_lead():
    """Return docs/samplers.md's sentences on where samplers are ahead of focus, by length of the video.

    uniform in short videos at K = 32, even_topk in videos of every length at K = 8.
    """
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
    "`focus`": "focus",
}


def cost_example():
    """Return docs/cost.md's table of the frames scored and encoded in the demo's run, summed over its questions."""
    rows = {row["Sampler"]: row for row in rows_of(PUBLISHED / "demo_pulls.csv")}
    lines = []
    for name, label in COST_EXAMPLE.items():
        frames, pulls, encoded = (float(rows[label][column]) for column in ("n_frames", "n_pulls", "n_encoded"))
        share = f"{encoded:,.0f} ({encoded / pulls:.3f})".replace("(0.", "(.")
        lines.append((name, f"{pulls:,.0f}", f"{pulls / frames:.2%}", share, f"{encoded / frames:.2%}"))
    return [line.replace("%", " %") for line in table(*lines)]


def published_costs():
    """Return 10^9 multiply-adds of published encoders by part, from the sizes that their configurations state."""
    transformers = pytest.importorskip("transformers")
    open_clip = pytest.importorskip("open_clip")
    from focus_eval.keyframes.encoders.open_clip import image_gmacs

    def blip(width, layers):
        vision = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers, "image_size": 384}
        return blip_gmacs(transformers.BlipConfig(vision_config={**vision, "patch_size": 16}), 35)

    towers = ("PE-Core-L-14-336", "MobileCLIP2-S0")
    return {
        "BLIP large": blip(1024, 24),
        "BLIP base": blip(768, 12),
        **{name: {"image": image_gmacs(json.dumps(open_clip.get_model_config(name)))} for name in towers},
        "CLIP ViT-B/32": dual_encoder_gmacs(transformers.CLIPConfig()),
        "`offline`": efficientnet_lite0_gmacs(224),
        "`offline:size=64`": efficientnet_lite0_gmacs(64),
    }


def encoder_costs():
    """Return docs/cost.md's sentence on the multiply-adds of an image, by encoder."""
    costs = sorted(((cost["image"], name) for name, cost in published_costs().items()), reverse=True)
    listed = ", ".join(f"{name} {image:.{1 if image > 1 else 3}f}" for image, name in costs)
    return [f"In 10^9 per image: {listed}."]


def blip_cost():
    """Return docs/cost.md's sentence on what BLIP large computes besides embedding images."""
    cost = published_costs()["BLIP large"]
    return [
        f"BLIP's keys and values of an image ({cost['keys']:.1f} for large) count once a frame, its matching with a "
        f"text (`fusion`, {cost['fusion']:.1f}) for each pair of frame and question."
    ]


def evidence(name):
    """Return a table of docs/evidence.md.

    tests/external/test_evidence.py compares its rows with what the command prints.
    """
    return table(*(tuple(row.values()) for row in rows_of(PUBLISHED / f"evidence_{name}.csv")))


def world_orders():
    """Return docs/simulation.md's sentence on the pairs of published selections that two worlds order rightly."""
    recorded = rows_of(PUBLISHED / "world_orders.csv")
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
    """Return docs/simulation.md's table that scripts/pages/world_validity.py computes."""
    rows = rows_of(PUBLISHED / "worlds.csv")
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
    return [row for row in rows_of(PUBLISHED / f"{name}.csv") if (row["world"], row["K"]) == ("all", "all")]


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
    rows = [row for row in rows_of(PUBLISHED / "frontier_select.csv") if row["K"] == "all"]
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
    rows = [row for row in rows_of(PUBLISHED / "frontier_demo.csv") if row["K"] == "all"]
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
    rows = rows_of(PUBLISHED / "frontier_budgets.csv")
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
    "blip_cost": blip_cost,
    "cost_example": cost_example,
    "demo_encoder_sizes": demo_encoder_sizes,
    "demo_gain": demo_gain,
    "demo_samplers": demo_samplers,
    "frontier": frontier,
    "frontier_mixtures": frontier_mixtures,
    "budget_gains": budget_gains,
    "frontier_demo": frontier_demo,
    "frontier_select": frontier_select,
    "validity": validity,
    "world_orders": world_orders,
    "evidence_view": partial(evidence, "view"),
    "evidence_within": partial(evidence, "within"),
    "encoder_costs": encoder_costs,
    "event_lengths": event_lengths,
    "realistic": realistic,
    "stretch_corner": stretch_corner,
    "stretch_map": stretch_map,
    "uneven_lead": uneven_lead,
}
