"""What is written down about a run of the plugin, and where?

    RECORD/NAME/cell.json                  what the run is
    RECORD/NAME/selections/rank0of1.jsonl  a SelectionRow per question
    RECORD/NAME/answers/rank0of1.jsonl     an AnswerRow per question

NAME ends in a hash over all that can change an answer; a run of the same name begins its files anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.declared import DeclaredBenchmark
from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.tasks.parsing import ParsedAnswer, read_answer, read_option
from focus_eval.lmms.tasks.scoring import task_of, task_score
from focus_eval.pipeline.timing import device_name
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.records import AnswerRow, RowWriter, SelectionRow, replace_file
from focus_eval.samplers.randomness import derived_rng

# Raised whenever our code may turn the same answer into another row, or show other frames.
SEAM_VERSION = 1
# What a wrapper may be told without any answer changing.
_WITHOUT_EFFECT = ("device", "device_map", "batch_size", "num_concurrent", "timeout", "max_retries", "retry_backoff_s")


@dataclass(frozen=True, kw_only=True)
class CellNames:
    """How a run's answers are called: a hash over all that can change them, and a readable name."""

    cell_id: str
    cell: str


CellOf = Callable[[str, Mapping[str, Any]], CellNames]


class Recorder:
    """Writes the rows of one rank. Files come into being with their first row.

    Args:
        where: folder of the run.
        model: name in the rows.
        cell_of: names the cell of (task, generation arguments).
        options: how answers are read.
        selection_id: of the wrapper's own sampling, where there are no selection rows.
        file_name: of both files; one per rank.
        device: what the model runs on.
        writes_selections: False where the selections are rows already.
        identity: what the run is, for `cell.json`.
    """

    def __init__(
        self,
        where: Path,
        *,
        model: str,
        cell_of: CellOf,
        options: SeamOptions,
        selection_id: str,
        file_name: str = "rank0of1.jsonl",
        device: str = "",
        writes_selections: bool = True,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.where = where
        self._model = model
        self._cell_of = cell_of
        self._options = options
        self._selection_id = selection_id
        self._file_name = file_name
        self._device = device
        self._writes_selections = writes_selections
        self._identity = identity
        self._writers: dict[str, RowWriter] = {}
        self._begun: set[str] = set()

    @classmethod
    def for_command_line(
        cls,
        options: SeamOptions,
        *,
        model: str,
        wrapper_arguments: Mapping[str, Any],
        prepared: Any,
        selection_id: str,
        frames: int,
        rank_and_world: tuple[int, int],
    ) -> Recorder:
        """Return the recorder of a run that lmms-eval started, below `options.record`."""
        identity = {
            "model": model,
            "arguments": {name: value for name, value in wrapper_arguments.items() if name not in _WITHOUT_EFFECT},
            "adapter": str(prepared) if prepared is not None else "",
            "selection": selection_id,
            "frames": frames,
            "frame_policy": options.frame_policy,
            "answer_parsing": options.answer_parsing,
            "seam_version": SEAM_VERSION,
        }
        chooser = options.sampler or Path(options.selections).stem
        name = f"{model}-{chooser}-k{frames}-seed{options.seed}".replace("/", "_")

        def cell_of(task: str, generation: Mapping[str, Any]) -> CellNames:
            known = {key: value for key, value in generation.items() if value is not None}
            full = identity_hash({**identity, "task": task, "generation": json.loads(json.dumps(known, default=str))})
            return CellNames(cell_id=full, cell=f"{task}-{name}-{full[:8]}")

        rank, world = rank_and_world
        return cls(
            Path(options.record) / f"{name}-{identity_hash(identity)[:8]}",
            model=model,
            cell_of=cell_of,
            options=options,
            selection_id=selection_id,
            file_name=f"rank{rank}of{world}.jsonl",
            device=device_name(str(wrapper_arguments.get("device") or "")) if wrapper_arguments.get("device") else "",
            identity=identity,
        )

    def selection(self, row: SelectionRow) -> None:
        """Write a selection."""
        if self._writes_selections:
            self._writer("selections").write(row)

    def answer(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Write what came of `pending`, and return the row."""
        row = self.answer_row(pending, frames)
        self._writer("answers").write(row)
        return row

    def answer_row(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Return the row of `pending`: a row with an error has no answer."""
        question, parts, chosen = pending.question, pending.parts, pending.row
        names = self._cell_of(parts.task, parts.generation)
        text = None if pending.error is not None else answer_text(pending.output)
        reading = self._read(pending, text)
        return AnswerRow(
            benchmark=question.benchmark,
            question_id=question.id,
            video=question.video,
            selection_id=chosen.selection_id if chosen else self._selection_id,
            cell_id=names.cell_id,
            cell=names.cell,
            model=self._model,
            bucket=(chosen.bucket if chosen else question.bucket) or "",
            frames_asked=frames,
            frames_chosen=len(chosen.keyframes) if chosen else 0,
            frames_fed=len(pending.fed_frames) if chosen else pending.n_reached or 0,
            fed_frames=list(pending.fed_frames),
            fallback=pending.fallback,
            answer=text,
            parsed=reading.parsed,
            correct_answer=question.answer,
            score=reading.score,
            metric=reading.metric,
            category=question.category,
            seconds={stage: round(seconds, 6) for stage, seconds in pending.seconds.items()},
            tokens=pending.tokens,
            device=self._device,
            error=pending.error,
        )

    def close(self) -> None:
        """Write through to the disk; a later row opens its file again."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _read(self, pending: PendingRequest, text: str | None) -> ParsedAnswer:
        if text is None:
            return ParsedAnswer(None, 0.0)
        question, parsing = pending.question, self._options.answer_parsing
        is_ours = pending.benchmark is not None and not isinstance(pending.benchmark, DeclaredBenchmark)
        if is_ours or (question.options and parsing == "strict"):
            return read_answer(question, text, answer_parsing=parsing, seed=self._options.seed)
        return self._read_as_task(pending, text)

    def _read_as_task(self, pending: PendingRequest, text: str) -> ParsedAnswer:
        """Return what the task's own metric says: of a task no benchmark describes, an open question, or when asked."""
        question, task = pending.question, task_of(pending.request)
        parsed = read_option(text, question.options) if question.options else text
        if task is None:
            return ParsedAnswer(parsed, None)
        seed = int(derived_rng(self._options.seed, question.benchmark, question.id, "guess").integers(2**32))
        scored = task_score(task, pending.document, text, seed=seed)
        return ParsedAnswer(parsed, scored.score, scored.metric)

    def _writer(self, kind: str) -> RowWriter:
        if kind not in self._writers:
            folder = self.where / kind
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / self._file_name
            if not self._begun:
                self._describe()
            if kind not in self._begun:
                file.unlink(missing_ok=True)
                self._begun.add(kind)
            self._writers[kind] = RowWriter(file)
        return self._writers[kind]

    def _describe(self) -> None:
        if self._identity is None or not self._file_name.startswith("rank0"):
            return
        from focus_eval.rows.provenance import git_revision, versions

        document = {"identity": self._identity, "git": git_revision(), "versions": versions()}
        with replace_file(self.where / "cell.json") as part:
            part.write_text(json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def answer_text(output: Any) -> str:
    """Return the text of what a wrapper returned: a string, or lmms-eval's `GenerationResult`."""
    from lmms_eval.api.instance import unwrap_generation_output

    text, _ = unwrap_generation_output(output)
    return str(text)
