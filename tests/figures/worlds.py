"""Figures of the demo, of costs and of evidence in view."""

from __future__ import annotations

import json
from functools import partial

import pytest

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.encoders.cost import blip_gmacs, dual_encoder_gmacs, efficientnet_lite0_gmacs
from focus_eval.keyframes.encoders.offline import FULL_SIZE
from focus_eval.keyframes.encoders.registry import read_encoder

from .rows import PUBLISHED, percent, rounded, rows_of, signed, table, with_interval


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
MAX_LOST = 2


def demo_encoder_sizes():
    """Return docs/demo.md's sentence on the encoder at the sizes of its input that the demo uses.

    Fails unless the demo selects at the smallest size that keeps recall, and answers at that which keeps accuracy.
    """
    by_size = {int(row["size"]): row for row in rows_of(PUBLISHED / "demo_encoder_sizes.csv")}
    whole_row = by_size[FULL_SIZE]
    smallest = {
        column: min(size for size, row in by_size.items() if float(row[column]) >= float(whole_row[column]) - MAX_LOST)
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


COST_EXAMPLE = {
    "even grid, as many pulls as `focus`": "even_diverse [control]",
    "`focus`": "focus",
}


def cost_example():
    """Return docs/concepts.md's table of the frames scored and encoded in the demo's run, summed over its questions."""
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
    """Return docs/concepts.md's sentence on the multiply-adds of an image, by encoder."""
    costs = sorted(((cost["image"], name) for name, cost in published_costs().items()), reverse=True)
    listed = ", ".join(f"{name} {image:.{1 if image > 1 else 3}f}" for image, name in costs)
    return [f"In 10^9 per image: {listed}."]


def blip_cost():
    """Return docs/concepts.md's sentence on what BLIP large computes besides embedding images."""
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


FIGURES = {
    "blip_cost": blip_cost,
    "cost_example": cost_example,
    "demo_encoder_sizes": demo_encoder_sizes,
    "demo_gain": demo_gain,
    "demo_samplers": demo_samplers,
    "evidence_view": partial(evidence, "view"),
    "evidence_within": partial(evidence, "within"),
    "encoder_costs": encoder_costs,
}
