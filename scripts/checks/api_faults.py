"""Ask a service that fails on purpose, many requests at a time: is each question answered or failed exactly once?

A fifth of the requests get 429, 500, a dropped connection, no reply until the time-out, or half a reply.
Run: python -m scripts.checks.api_faults [--questions 2000] [--at-once 64] [--faults 0.2]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.bench.answering import write_answering_matrix
from tests.support.keyframes.chat_server import ChatServer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--faults", type=float, default=0.2, help="share of the requests that fail")
    parser.add_argument("--attempts", type=int, default=3, help="requests per question at most")
    arguments = parser.parse_args()
    with (
        ChatServer(fault_share=arguments.faults, delay_seconds=0.5) as chat,
        tempfile.TemporaryDirectory() as temporary,
    ):
        started = time.perf_counter()
        rows = answer_rows(
            Path(temporary), chat, arguments.questions, at_once=arguments.at_once, attempts=arguments.attempts
        )
        per_question = Counter(row.question_id for row in rows)
        answered = sum(row.error is None for row in rows)
        outcomes = {
            "questions": arguments.questions,
            "rows": len(rows),
            "answered": answered,
            "recorded as failed": len(rows) - answered,
            "without a row": arguments.questions - len(per_question),
            "with more than one row": sum(n > 1 for n in per_question.values()),
            "requests": chat.n_requests,
            "failed on purpose": sum(chat.failed.values()),
            "of each kind": dict(chat.failed),
            "answers sent": sum(chat.answered.values()),
            "answered twice by the service": sum(n > 1 for n in chat.answered.values()),
            "most requests at once": chat.most_at_once,
            "seconds": round(time.perf_counter() - started),
        }
    print(json.dumps(outcomes, indent=1))


def answer_rows(folder: Path, chat: ChatServer, n_questions: int, *, at_once: int, attempts: int) -> list:
    """Run the matrix in `folder` against `chat` and return all stored rows, repeated ones included."""
    os.environ.update(OPENAI_API_KEY="none", OPENAI_API_BASE=chat.url, OPENAI_BASE_URL=chat.url)
    from focus_eval.bench.matrix.cells import cells
    from focus_eval.bench.matrix.config import load_matrix
    from focus_eval.bench.matrix.running import complete_run
    from focus_eval.bench.rows.store import parquet_records
    from focus_eval.keyframes.rows.json_lines import read_rows
    from focus_eval.keyframes.rows.records import AnswerRow

    arguments = {"base_url": chat.url, "num_concurrent": at_once, "max_retries": attempts, "retry_backoff_s": 0.05}
    model = {"name": "chat", "model": "focus_gpt4o", "args": {**arguments, "timeout": 2}, "frames": 2}
    matrix = load_matrix(write_answering_matrix(folder / "data", n_questions, model=model))
    run = complete_run(matrix, out=folder / "runs" / "answering")
    (cell,) = cells(matrix)
    lines = [row for path in run.part(cell).glob("*.jsonl") for row in read_rows(path, AnswerRow)]
    stored = parquet_records(run.part(cell) / "rows.parquet")
    return [*lines, *(AnswerRow(**record) for record in stored)]


if __name__ == "__main__":
    main()
