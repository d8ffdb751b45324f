"""One `KeyframeSelector` for many videos: in a loop, in threads and in other processes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

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
