"""One `KeyframeSelector` for many videos: in a loop, in threads and in other processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from focus_eval import KeyframeSelector
from focus_eval.keyframes.video.clip_writer import ClipWriter

QUERIES = ("a dog", "a cat", "a dog")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    draw = np.random.default_rng(0)
    for number in range(3):
        with ClipWriter(folder / f"v{number}.mp4", width=64, height=48, fps=10) as writer:
            for _ in range(20):
                writer.write(draw.integers(0, 255, (48, 64, 3), dtype=np.uint8))
    return [(folder / f"v{number}.mp4", query) for number, query in enumerate(QUERIES)]


@pytest.mark.slow
def test_a_loop_threads_and_other_processes_choose_the_same_frames(pairs):
    pytest.importorskip("openvino", reason="the offline extra is not installed")
    selector = KeyframeSelector(k=3, encoder="offline", sampler="topk")
    videos, queries = zip(*pairs, strict=True)
    with ThreadPoolExecutor(3) as pool:
        in_threads = [selection.keyframes for selection in pool.map(selector.select, videos, queries)]
        assert len({id(loaded) for loaded in pool.map(lambda _: selector.load(), range(3))}) == 1
    assert in_threads == [selector.select(*pair).keyframes for pair in pairs]
    # The selector has loaded its encoder, and travels without it.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        keyframes = pool.submit(keyframes_of, selector, pairs[0]).result()
    assert keyframes == in_threads[0]


def keyframes_of(selector, pair):
    return selector.select(*pair).keyframes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "is_used_before"), [("spawn", False), ("spawn", True), ("fork", False), ("fork", True)]
)
def test_the_data_loader_of_the_page_gives_pictures_in_order_or_says_that_it_was_forked(
    pairs, tmp_path, method, is_used_before
):
    for package in ("torch", "openvino"):
        pytest.importorskip(package)
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    (script,) = [block for block in re.findall(r"^```python\n(.*?)^```", page, re.S | re.M) if "DataLoader" in block]
    first = (
        f"KeyframeSelector(k=2, encoder='offline').select({str(pairs[0][0])!r}, 'a dog')\n    "
        if is_used_before
        else ""
    )
    script = script.replace('k=4, sampler="even_topk"', 'k=4, sampler="even_topk", encoder="offline"')
    script = script.replace('"spawn"', f'"{method}"').replace("pairs = [", f"{first}pairs = [", 1)
    (tmp_path / "loader.py").write_text(script)
    (tmp_path / "talk.mp4").write_bytes(pairs[0][0].read_bytes())
    ran = subprocess.run(
        [sys.executable, "loader.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if (method, is_used_before) == ("fork", True):
        assert "the encoder offline was loaded before this process was forked" in ran.stderr
    else:
        assert ran.stdout.split("\n")[:-1] == ["torch.Size([4, 48, 64, 3])"] * 2, ran.stderr
