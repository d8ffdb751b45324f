"""Every call fails once: nothing is lost, nothing doubled, and the message names the file."""

from __future__ import annotations

import gc
import json
import random
import shutil
from collections import Counter
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.page.html import write_html
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import FocusEvalError
from focus_eval.keyframes.encoders.store import RelevanceStore
from tests.bench.matrix.conftest import write_simulation
from tests.external.imports.test_lmms_logs import line, write_log
from tests.support.bench import kill_roads
from tests.support.bench.answering import write_answering_matrix
from tests.support.bench.failing_calls import FailingCalls
from tests.support.bench.kills import row_digests, row_texts
from tests.support.keyframes.chat_server import ChatServer

pytestmark = pytest.mark.slow

MAX_CALLS = 25  # of one road, drawn with a seed


def said(error):
    """Return the error message that the command line prints."""
    is_named = isinstance(error, FocusEvalError) or not error.filename
    return str(error) if is_named else f"{error.filename}: {error.strerror}"


def nothing(*places):
    """Prepare nothing, or find nothing wrong."""
    return []


def every_failure(folder, road, *, prepare=nothing, find_leftovers=nothing, check, seed=0, max_calls=MAX_CALLS):
    """Let each call of `road` fail once, or `max_calls` of them; return how many of each kind failed.

    Args:
        road: takes an empty folder to its end.
        find_leftovers, check: yield the problems of a folder, given the undisturbed one first: after the failed start,
            and after the second.
    """
    whole = folder / "whole"
    prepare(whole)
    with FailingCalls(whole).watching() as whole_calls:
        road(whole)
    numbers = range(1, whole_calls.n_calls + 1)
    numbers = numbers if len(numbers) <= max_calls else sorted(random.Random(seed).sample(numbers, max_calls))
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
        wrong += [f"call {number} ({calls.kind}) left: {problem}" for problem in find_leftovers(whole, place)]
        road(place)
        wrong += [f"call {number} ({calls.kind}): {problem}" for problem in check(whole, place)]
        shutil.rmtree(place)
    assert wrong == []
    return failed


def same_rows(whole, place):
    """Say what differs between the rows of two runs."""
    if row_digests(place / "run") != row_digests(whole / "run"):
        yield "other bytes at the end"
    texts = row_texts(place / "run")
    if any(len(variants) > 1 for variants in texts.values()) or list(place.rglob("*.part")):
        yield "a row twice, or an unfinished file left"


def test_every_call_of_selecting_and_compacting_may_fail_once(tmp_path):
    matrix = load_matrix(write_simulation(tmp_path / "data", n_questions=3, n_videos=2, samplers=("topk",)))
    failed = every_failure(tmp_path, lambda place: complete_run(matrix, out=place / "run"), check=same_rows, seed=1)
    assert {"open", "write", "fsync", "rename", "lock"} <= set(failed)


@pytest.mark.slow
def test_every_call_of_answering_may_fail_once(tmp_path):
    pytest.importorskip("openvino")
    model = {"name": "encoder", "model": "focus_zero_shot", "args": {"answer_encoder": "offline"}, "frames": 2}
    matrix = load_matrix(write_answering_matrix(tmp_path / "data", 2, model=model))
    every_failure(
        tmp_path, lambda place: complete_run(matrix, out=place / "run"), check=same_rows, seed=2, max_calls=12
    )


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

    every_failure(tmp_path, road, prepare=prepare, check=same_page, seed=3, max_calls=8)


def files_of(folder):
    """Return the bytes of every file of a run by its name, without locks."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def old_or_new(old):
    """Return a check that each file is whole: as it was in `old`, or as it will be."""

    def find_leftovers(whole, place):
        expected = files_of(old / "run"), files_of(whole / "run")
        actual = files_of(place / "run")
        yield from (name for name, content in actual.items() if all(content != files.get(name) for files in expected))
        if set(expected[0]) - set(actual):
            yield "a file of the earlier import is gone"

    return find_leftovers


def same_files(whole, place):
    """Say whether two imports differ in any byte of any file."""
    if files_of(place / "run") != files_of(whole / "run"):
        yield "other files at the end"


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "in place of an earlier one"])
@pytest.mark.parametrize("kind", ["lmms", "answers"])
def test_every_call_of_an_import_may_fail_once(tmp_path, kind, is_first):
    def prepare(place):
        place.mkdir()
        if not is_first:
            shutil.copytree(old / "run", place / "run")
        write_published(place, letter="B")

    old = tmp_path / "old"
    write_published(old, letter="A")
    if not is_first:
        import_published(kind, old)
    road = partial(import_published, kind)
    failed = every_failure(tmp_path, road, prepare=prepare, find_leftovers=old_or_new(old), check=same_files, seed=5)
    assert {"open", "write", "fsync", "rename"} <= set(failed)


@pytest.mark.parametrize("is_written_again", [False, True], ids=["imported", "written again"])
def test_every_call_of_a_file_of_selections_may_fail_once(tmp_path, is_written_again):
    def road(place):
        annotations = ("--annotations", place / "lvb.json")
        if is_written_again:
            source, out = place / "made" / "said.parquet", place / "run" / "selected_frames.json"
            invoke("import", "auto", source, "--to", "focus", "--out", out, *annotations)
        else:
            invoke("import", "answers", place / "said.json", "--out", place / "run" / "said.parquet", *annotations)

    def prepare(place):
        write_published(place, letter="B")
        if is_written_again:
            out, annotations = place / "made" / "said.parquet", place / "lvb.json"
            invoke("import", "answers", place / "said.json", "--out", out, "--annotations", annotations)

    leftover_check = old_or_new(tmp_path)
    failed = every_failure(tmp_path, road, prepare=prepare, find_leftovers=leftover_check, check=same_files, seed=6)
    assert {"open", "fsync", "rename"} <= set(failed)


def write_published(place, *, letter):
    """Write a log of lmms-eval, and selections with answers: what there is to import."""
    verdict = {"answer": "B", "parsed_pred": letter}
    write_log(place / "log", [line(at, filtered_resps=[letter], acc=verdict) for at in range(3)])
    question = {"question": "what?", "candidates": ["a", "b"], "correct_choice": 1, "duration": 200.0}
    questions = [{**question, "id": f"v_{at}", "video_path": "v.mp4", "position": [24]} for at in range(3)]
    (place / "lvb.json").write_text(json.dumps(questions))
    answers = [{"id": f"v_{at}", "frames": [3, 60 + at], "answer": letter} for at in range(3)]
    (place / "said.json").write_text(json.dumps(answers))
    (place / "rates.csv").write_text("id,duration_s,fps\n" + "".join(f"v_{at},200,25\n" for at in range(3)))


def import_published(kind, place):
    if kind == "lmms":
        invoke("import", "lmms", place / "log", "--out", place / "run", "--frames-field", "indices")
    else:
        options = ("--annotations", place / "lvb.json", "--rates", place / "rates.csv", "--model", "m")
        invoke("import", "answers", place / "said.json", "--out", place / "run", *options)


def invoke(*arguments):
    """Run a command; its errors are raised."""
    CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def test_every_call_of_lmms_evals_record_may_fail_once(tmp_path, monkeypatch):
    with ChatServer() as chat:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY", "HF_HOME"):
            monkeypatch.setenv(name, "")  # put back at the end
        run_folder = kill_roads.lmms_eval(tmp_path / "data", 2, chat.url)

        def same_answers(whole, place):
            expected = run_folder.digests(whole / "run")
            assert expected
            if run_folder.digests(place / "run") != expected or list(place.rglob("*.part")):
                yield "other rows at the end, or an unfinished file"

        def road(place):
            gc.collect()  # a model that is left holds its folder's lock; a command's ends with its process
            run_folder.command(place / "run")

        every_failure(tmp_path, road, check=same_answers, seed=7, max_calls=8)


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
