"""Every call fails once: nothing is lost, nothing doubled, and the message names the file."""

from __future__ import annotations

import random
import shutil
from collections import Counter

import numpy as np
import pytest

from focus_eval.core.errors import FocusEvalError
from focus_eval.encoders.store import RelevanceStore
from focus_eval.matrix.config import load_matrix
from focus_eval.matrix.running import complete_run
from focus_eval.report.page.html import write_html
from focus_eval.report.run import load_run
from support.answering import write_answering_matrix
from support.failing_calls import FailingCalls
from support.kills import row_digests, row_texts

from .matrix.conftest import write_simulation

MOST_CALLS = 25  # of one road, drawn with a seed


def said(error):
    """What the command line prints of an error."""
    is_named = isinstance(error, FocusEvalError) or not error.filename
    return str(error) if is_named else f"{error.filename}: {error.strerror}"


def every_failure(folder, road, *, prepare=lambda place: None, check, seed=0, most=MOST_CALLS):
    """Let each call of `road` fail once, or `most` of them; return how many of each kind failed.

    Args:
        road: takes an empty folder to its end.
        check: is given the folder after the failed start and a second, undisturbed one.
    """
    whole = folder / "whole"
    prepare(whole)
    with FailingCalls(whole).watching() as counted:
        road(whole)
    numbers = range(1, counted.n_calls + 1)
    numbers = numbers if len(numbers) <= most else sorted(random.Random(seed).sample(numbers, most))
    failed, wrong = Counter(), []
    for number in numbers:
        place = folder / f"call{number}"
        prepare(place)
        with FailingCalls(place, fail_at=number).watching() as calls:
            try:
                road(place)
            except (FocusEvalError, OSError) as error:
                if str(place) not in said(error):
                    wrong.append(f"call {number} ({calls.kind}) is not named: {error!r}")
        failed[calls.kind] += 1
        road(place)
        wrong += [f"call {number} ({calls.kind}): {what}" for what in check(whole, place)]
        shutil.rmtree(place)
    assert wrong == []
    return failed


def same_rows(whole, place):
    """Say what differs between the rows of two runs."""
    if row_digests(place / "run") != row_digests(whole / "run"):
        yield "other bytes at the end"
    texts = row_texts(place / "run")
    if any(len(found) > 1 for found in texts.values()) or list(place.rglob("*.part")):
        yield "a row twice, or an unfinished file left"


def test_every_call_of_selecting_and_compacting_may_fail_once(tmp_path):
    matrix = load_matrix(write_simulation(tmp_path / "data", n_questions=3, n_videos=2, samplers=("topk",)))
    failed = every_failure(tmp_path, lambda place: complete_run(matrix, out=place / "run"), check=same_rows, seed=1)
    assert {"open", "write", "fsync", "rename", "lock"} <= set(failed)


def test_every_call_of_answering_may_fail_once(tmp_path):
    pytest.importorskip("openvino")
    model = {"name": "encoder", "model": "focus_zero_shot", "args": {"answer_encoder": "offline"}, "frames": 2}
    matrix = load_matrix(write_answering_matrix(tmp_path / "data", 2, model=model))
    every_failure(tmp_path, lambda place: complete_run(matrix, out=place / "run"), check=same_rows, seed=2, most=12)


def test_every_call_of_a_report_may_fail_once(tmp_path):
    matrix = load_matrix(write_simulation(tmp_path / "data", n_questions=3, n_videos=2, samplers=("topk",)))
    complete_run(matrix, out=tmp_path / "made" / "run")

    def prepare(place):
        shutil.copytree(tmp_path / "made", place, symlinks=True)

    def same_page(whole, place):
        pages = [(folder / "run" / "report.html").read_text(encoding="utf-8") for folder in (whole, place)]
        if pages[0] != pages[1].replace(str(place), str(whole)) or list(place.rglob("*.part")):
            yield "another page"

    def road(place):
        write_html(load_run(place / "run"), place / "run" / "report.html")

    every_failure(tmp_path, road, prepare=prepare, check=same_page, seed=3, most=8)


def test_every_statement_of_the_store_may_fail_once(tmp_path):
    frames, values = np.arange(5), np.arange(5) / 5
    vectors = np.ones((5, 4), np.float32) * frames[:, None].astype(np.float32)

    def road(place):
        store = RelevanceStore(place / "store.sqlite")
        try:
            assert store.put_embeddings("clip", "v", frames, vectors).tobytes() == vectors.tobytes()
            assert store.put_relevance("clip", "v", "q", frames, values).tobytes() == values.tobytes()
            assert store.embeddings("clip", "v", frames)[1].tobytes() == vectors.tobytes()
            np.testing.assert_array_equal(store.relevance("clip", "v", "q", frames), values)
        finally:
            store.close()

    failed = every_failure(tmp_path, road, check=lambda whole, place: [], seed=4)
    assert failed["sqlite"]
