"""The run that every test here reads, and its rows as plain dictionaries."""

from __future__ import annotations

import json

import pytest

from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.page.html import report_tables
from focus_eval.bench.report.run import load_run
from tests.bench.report.realistic.by_hand import LABELS
from tests.bench.report.realistic.made_run import CONFIGURATIONS, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "realistic")


@pytest.fixture(scope="module")
def run(folder):
    return load_run(folder)


@pytest.fixture(scope="module")
def rows(folder):
    """Each answer with its selection, as plain dictionaries, found by reading the files."""
    read = {
        kind: [json.loads(line) for line in (folder / kind / "all" / "rows-0.jsonl").read_text().splitlines()]
        for kind in ("selections", "answers")
    }
    selection_by_key = {
        (item["benchmark"], item["question_id"], item["selection_id"]): item for item in read["selections"]
    }
    by_configuration = {(item.sampler, item.encoder): label for item, label in zip(CONFIGURATIONS, LABELS, strict=True)}
    for item in read["selections"]:
        item["label"] = by_configuration[item["sampler"], item["encoder"]]
    for answer in read["answers"]:
        answer["selection"] = selection_by_key[answer["benchmark"], answer["question_id"], answer["selection_id"]]
    return read


@pytest.fixture(scope="module")
def tables(run):
    return report_tables(run)


@pytest.fixture(scope="module")
def overview(run):
    return results_table(run, "overview")
