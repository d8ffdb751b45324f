"""research/scripts/equal_budgets.py: samplers are paired at equal budgets, whatever their labels say beside."""

from __future__ import annotations

import pandas as pd
import pytest

from research.scripts import equal_budgets as script


@pytest.mark.parametrize(
    ("label", "label_text"),
    [
        ("even_cover share=0.0025 #016d", ("even_cover", 0.25)),
        ("even_cover share=0.01 density=likelihood_ratio #12fb", ("even_cover density=likelihood_ratio", 1.0)),
        ("even_diverse every_seconds=2 [control] #00aa", ("even_diverse", 2.0)),
        ("focus clip_seconds=7 seconds_per_fine_pull=0.438", ("focus", 4.0)),
        (
            "scan_cover scan_encoder=bad share=0.04 fallback=none value=recall #a6c2",
            ("scan_cover scan_encoder=bad", 4.0),
        ),
        ("all_frames [control] #2538", None),
    ],
)
def test_a_label_says_the_budget(label, label_text):
    assert script.series(label) == label_text


def test_questions_are_paired_at_one_budget():
    def rows(label, recalls):
        return [
            {"k": 8, "label": label, "question_id": str(at), "video": str(at), "n_frames": 1000, "recall@2": recall,
             "forward_equivalents": 10.0}
            for at, recall in enumerate(recalls)
        ]  # fmt: skip

    lines = rows("even_cover share=0.01 #aa", [0, 0, 1, 1, 1, 0]) + rows(
        "focus clip_seconds=28 seconds_per_fine_pull=1.75", [1, 0, 1, 1, 1, 1]
    )
    lines += rows("focus clip_seconds=7 seconds_per_fine_pull=0.438", [1] * 6)
    table = script.at_equal_budgets(pd.DataFrame(lines), "even_cover").set_index("sampler")
    assert [*table.index] == ["even_cover", "focus"]
    assert table.loc["focus", "minus baseline"] == pytest.approx(100 / 3)
    assert table.loc["focus", "forwards (%)"] == pytest.approx(1.0)
