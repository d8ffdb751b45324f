"""Patches become tokens in the recorded numbers and order."""

from __future__ import annotations

import json

import pytest
import torch

from focus_eval.bench.lmms.llava_video.checkpoint import TokenLayout
from focus_eval.core.errors import InvalidInput

NEWLINE = -1.0


def marks(frames: int, side: int) -> torch.Tensor:
    """Pooled features of width 1 that count up in time and reading order."""
    return torch.arange(frames * side * side, dtype=torch.float32).view(frames, side, side, 1)


@pytest.mark.parametrize(
    ("newline", "expected"),
    [
        ("grid", [0, 1, -1, 2, 3, -1, 4, 5, -1, 6, 7, -1]),
        ("frame", [0, 1, 2, 3, -1, 4, 5, 6, 7, -1]),
        ("one_token", [0, 1, 2, 3, 4, 5, 6, 7, -1]),
        ("no_token", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_newlines_stand_where_the_layout_says(newline, expected):
    layout = TokenLayout(side=4, pooling="bilinear", newline=newline)
    tokens = layout.tokens(marks(2, 2), torch.tensor([NEWLINE]))
    assert tokens.view(-1).tolist() == expected


def test_average_drops_the_odd_row_and_column_and_bilinear_rounds_up():
    patches = marks(1, 5).view(1, 25, 1)
    average = TokenLayout(side=5, pooling="average", newline="grid").pool(patches)
    assert average.shape == (1, 2, 2, 1)
    assert average.view(-1).tolist() == [3, 5, 13, 15]
    assert TokenLayout(side=5, pooling="bilinear", newline="grid").pool(patches).shape == (1, 3, 3, 1)


def test_both_poolings_agree_on_an_even_grid_and_so_cannot_be_told_apart_there():
    patches = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(0))
    average, bilinear = (
        TokenLayout(side=4, pooling=item, newline="grid").pool(patches) for item in ("average", "bilinear")
    )
    assert torch.allclose(average, bilinear, atol=1e-6)


def test_counts_are_the_recorded_ones(recorded_llava_video):
    cases = json.loads((recorded_llava_video / "cases_meta.json").read_text())["cases"]
    assert len(cases) == 11
    for case in cases.values():
        layout = TokenLayout(side=27, pooling=case["pool_mode"], newline=case["newline_position"])
        assert layout.count(case["num_frames"]) == case["num_video_tokens"]


@pytest.mark.parametrize("pooling", ["bilinear", "average"])
@pytest.mark.parametrize("newline", ["grid", "frame", "one_token", "no_token"])
def test_the_count_is_the_length_of_the_layout(pooling, newline):
    layout = TokenLayout(side=9, pooling=pooling, newline=newline)
    assert len(layout.tokens(marks(3, layout.pooled_side), torch.zeros(1))) == layout.count(3)


@pytest.mark.parametrize(
    ("newline", "pooling", "fit"), [("grid", "bilinear", 155), ("grid", "average", 178), ("one_token", "bilinear", 166)]
)
def test_the_number_of_frames_that_fit_is_named_and_exact(newline, pooling, fit):
    layout = TokenLayout(side=27, pooling=pooling, newline=newline)
    layout.check_fit(fit, other_tokens=200, context_tokens=32768)
    with pytest.raises(InvalidInput, match=f"; {fit} frames fit"):
        layout.check_fit(fit + 1, other_tokens=200, context_tokens=32768)


def test_a_prompt_that_fills_the_context_leaves_no_frame():
    with pytest.raises(InvalidInput, match="; 0 frames fit"):
        TokenLayout(side=27, pooling="average", newline="one_token").check_fit(1, other_tokens=100, context_tokens=150)
