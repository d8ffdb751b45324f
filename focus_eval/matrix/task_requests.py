"""Asks a benchmark's questions as lmms-eval does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus_eval.errors import RunError
from focus_eval.matrix.config import BenchmarkConfig
from focus_eval.matrix.documents import find_documents, task_source
from focus_eval.matrix.questions import QuestionSet
from focus_eval.resources import resource_path


class TaskRequests:
    """The requests of one lmms-eval task, found by question id.

    They are built once by the task itself (its prompt, its generation arguments); what makes a document our
    question is the same code that read the annotations.

    Raises:
        RunError: a task lmms-eval does not know, or whose documents are not the questions of the benchmark.
    """

    def __init__(self, questions: QuestionSet, *, kind: str) -> None:
        self._home = data_home(questions.config)
        with _home_of_tasks(self._home):
            self._task = _load_task(questions.config, kind)
            # All documents in one process: which are asked is decided here, by question id.
            self._task.build_all_requests(limit=None, rank=0, world_size=1)
        # The same choice that lmms-eval makes when it builds its requests.
        split = self._task.config.test_split if self._task.has_test_docs() else self._task.config.validation_split
        documents = self._task.dataset[split]
        self._by_question: dict[str, Any] = {}
        for request in self._task.instances:
            # By id, never by position: the task's documents may lie in another order.
            question = questions.benchmark.question(documents[request.doc_id])
            self._by_question[question.id] = request
        missing = [question.id for question in questions.questions if question.id not in self._by_question]
        if missing:
            raise RunError(
                f"task {questions.config.task!r} has no document for {len(missing)} of {len(questions.questions)} "
                f"questions, the first is {missing[0]!r}: are the annotations of another split or version?"
            )

    @contextmanager
    def served(self, model: Any) -> Iterator[TaskRequests]:
        """Let `model` look up this task's documents and videos for a while."""
        # Every time: the model may have been loaded since, and another benchmark's videos may lie elsewhere.
        model.task_dict[self._task.config.task] = self._task.dataset
        with _home_of_tasks(self._home):
            yield self

    def of(self, question_ids: tuple[str, ...]) -> list[Any]:
        """Return the requests of these questions, in this order."""
        return [self._by_question[question_id] for question_id in question_ids]


def data_home(config: BenchmarkConfig) -> Path:
    """Return the folder below which the task looks for its videos: `data_home`, else the hub's own."""
    return Path(config.data_home or os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser().resolve()


@contextmanager
def _home_of_tasks(folder: Path) -> Iterator[None]:
    """Set HF_HOME for a while: tasks look their videos up below it whenever asked; MLVU's default points nowhere."""
    before = os.environ.get("HF_HOME")
    os.environ["HF_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["HF_HOME"]
        else:
            os.environ["HF_HOME"] = before


def _documents(config: BenchmarkConfig) -> dict[str, Any]:
    """Return where the task reads its documents: the very files the questions are from, without a network.

    Raises:
        MissingDocuments: they are not on this machine.
    """
    found, split = find_documents(config), task_source(config.task).split
    files = [str(file.resolve()) for file in found.files]
    return {"dataset_path": found.format, "dataset_name": None, "dataset_kwargs": {"data_files": {split: files}}}


def _load_task(config: BenchmarkConfig, kind: str) -> Any:
    name = config.task
    if not name:
        raise RunError("a benchmark that models answer needs its lmms-eval task: set task in its config")
    from lmms_eval.tasks import TaskManager

    folder = resource_path("tasks")
    # Reading lmms-eval's thousands of task files takes seconds; a task of ours needs none of them.
    is_ours = (folder / f"{name}.yaml").exists()
    manager = TaskManager(include_path=str(folder), include_defaults=not is_ours, model_name="default")
    try:
        # lmms-eval's get_task_dict forgets `kind` where the documents are named, and builds simple requests for all.
        return manager.load_task_or_group([{"task": name, **_documents(config)}], kind)[name]
    except (KeyError, ValueError, FileNotFoundError) as error:
        raise RunError(f"lmms-eval cannot load task {name!r}: {error}") from error
