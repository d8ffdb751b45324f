"""Many requests under way at a service of which a fifth fails: every question has one row, an answer or an error."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.bench.answering import write_answering_matrix
from tests.support.keyframes.chat_server import ChatServer


@pytest.mark.slow
def test_each_question_is_answered_or_recorded_as_failed_exactly_once(tmp_path, monkeypatch):
    pytest.importorskip("lmms_eval", reason="the lmms extra is not installed")
    from focus_eval.bench.matrix.cells import cells
    from focus_eval.bench.matrix.config import load_matrix
    from focus_eval.bench.matrix.running import complete_run

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with ChatServer(fault_share=0.4, silent_seconds=3.0, expected_at_once=5) as chat:
        arguments = {"base_url": chat.url, "num_concurrent": 16, "max_retries": 2, "retry_backoff_s": 0.01}
        model = {"name": "chat", "model": "focus_gpt4o", "args": {**arguments, "timeout": 2}, "frames": 1}
        matrix = load_matrix(write_answering_matrix(tmp_path / "data", 40, model=model))
        run = complete_run(matrix, out=tmp_path / "runs" / "run")
    (cell,) = cells(matrix)
    rows = list(run.answers(cell))
    assert Counter(row.question_id for row in rows) == {f"q{number}": 1 for number in range(40)}
    failed = [row for row in rows if row.error is not None]
    assert len(failed) > 0
    assert all(row.answer is None and row.tokens["requests"] == 2 for row in failed)
    assert chat.most_at_once >= 5
    assert set(chat.failed) >= {"429", "500", "dropped", "truncated"}
