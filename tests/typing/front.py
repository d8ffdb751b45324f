"""Types of the public front, which `mypy` checks: a wrong one is an error of its run. Nothing here is executed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

from focus_eval import Encoder, KeyframeSelector, VideoSelection, make_encoder, select_keyframes


def check_select_keyframes(paths: list[Path], pictures: NDArray[np.uint8], queries: list[str]) -> None:
    assert_type(select_keyframes("a.mp4"), VideoSelection)
    assert_type(select_keyframes(paths[0], query="a car", k=4, sampler="focus", seed=1), VideoSelection)
    assert_type(select_keyframes(pictures, query="a car", fps=1, start_seconds=2), VideoSelection)
    assert_type(select_keyframes("a.mp4", query=queries), list[VideoSelection])
    assert_type(select_keyframes("a.mp4", query=("a car", "a dog")), list[VideoSelection])
    assert_type(select_keyframes(paths, query="a car"), list[VideoSelection])
    assert_type(select_keyframes(["a.mp4", "b.mp4"]), list[VideoSelection])
    assert_type(select_keyframes(paths, query=queries), list[list[VideoSelection]])


def check_keyframe_selector(queries: list[str]) -> None:
    selector = KeyframeSelector(k=4, encoder="offline", sampler_options={"pulls": 60})
    assert_type(selector.select("a.mp4"), VideoSelection)
    assert_type(selector.select("a.mp4", "a car"), VideoSelection)
    assert_type(selector.select("a.mp4", queries), list[VideoSelection])


def check_made_encoder() -> None:
    assert_type(make_encoder("offline"), Encoder)
    select_keyframes("a.mp4", encoder=make_encoder("offline"))


def check_wrong_options() -> None:
    """Each line is an error: without it `mypy` reports an unused ignore."""
    select_keyframes("a.mp4", k="8")  # type: ignore[call-overload]
    select_keyframes("a.mp4", samplr="focus")  # type: ignore[call-overload]
    KeyframeSelector(encoder=5)  # type: ignore[arg-type]
