"""Turns answered or failed requests into rows, and writes them into the folder of `record=`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from focus_eval.bench.lmms.arguments import AdapterOptions
from focus_eval.bench.lmms.parsing import REASONING_TAGS, ParsedAnswer, StrippedReply, TagPairs, read_answer
from focus_eval.bench.lmms.requests import PendingRequest, RequestParts
from focus_eval.bench.lmms.tasks import DEFAULT, prompts_of_request, task_of, task_score
from focus_eval.bench.rows.open_cell import OpenCell
from focus_eval.core.errors import RunError
from focus_eval.keyframes.encoders.weights import damage_lines, weights_folder, weights_identity
from focus_eval.keyframes.pipeline.timing import device_name
from focus_eval.keyframes.rows.identity import answer_identity, git_revision, identity_hash, versions
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, SelectionRow, answer_row
from focus_eval.keyframes.video import gives_exact_pixels


class Recorder:
    """Reads answers and writes their rows into one cell.

    Args:
        model: name of the model in the rows.
        options: of these, answer parsing and seed are used to read answers.
        selection_id: written in answers without a selection row (the wrapper's own sampling).
        cell: of all requests; None only for a subclass that has one per request.
        device: name of the model's device in the rows; "" if unknown.

    Attributes:
        on_row: called with each row, once it is written.
    """

    # Of lmms-eval's command line, as JSON, or of the matrix's model; None if neither states any.
    stated_reasoning_tags: str | TagPairs | None = None
    on_row: Callable[[AnswerRow], None] | None = None

    def __init__(
        self,
        *,
        model: str,
        options: AdapterOptions,
        selection_id: str,
        cell: OpenCell | None = None,
        device: str = "",
    ) -> None:
        self._model = model
        self._options = options
        self._selection_id = selection_id
        self._device = device
        self._cells = {} if cell is None else {cell.names.cell_id: cell}

    def cell_of(self, parts: RequestParts) -> OpenCell:
        """Return the cell of a request."""
        (cell,) = self._cells.values()
        return cell

    def earlier(self, pending: PendingRequest) -> AnswerRow | None:
        """Return the answer of an earlier start without an error; None if there is none, or nobody asks it again."""
        return None

    def earlier_selection(self, pending: PendingRequest) -> SelectionRow | None:
        """Return the selection of an earlier start without an error; None as in `earlier`."""
        return None

    def selection(self, pending: PendingRequest) -> None:
        """Write the selection row of `pending`, unless it was read from an earlier start's file."""
        # The very row that was read is not written a second time; one that was chosen again is.
        if pending.row is not None and self.earlier_selection(pending) is not pending.row:
            self.cell_of(pending.parts).write(pending.row)

    def close(self) -> None:
        """Close the files of all cells; a later row opens its file again."""
        for cell in self._cells.values():
            cell.close()

    def answer(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Write and return the answer row of `pending`; `frames` is the requested number of frames."""
        row = self.answer_row(pending, frames)
        self.cell_of(pending.parts).write(row)
        # After the row is written, so that progress counts only rows that are there.
        if self.on_row is not None:
            self.on_row(row)
        return row

    def answer_row(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Return the answer row of `pending`; a row with an error has no answer.

        Args:
            frames: requested number of frames.
        """
        question, selection = pending.question, pending.row
        text = None if pending.error is not None else answer_text(pending.output)
        reading = self._read(pending, text)
        # Without a selection only the model's inputs tell how many frames it was shown.
        own_sampling = {} if selection else {"selection_id": self._selection_id, "frames_fed": pending.n_reached or 0}
        return answer_row(
            question,
            self.cell_of(pending.parts).names,
            model=self._model,
            frames_asked=frames,
            selection=selection,
            fed_frames=pending.fed_frames,
            **own_sampling,
            fallback=pending.fallback,
            answer=text,
            parsed=reading.parsed,
            score=reading.score,
            metric=reading.metric,
            is_cut=reading.is_cut,
            seconds={stage: round(seconds, 6) for stage, seconds in pending.seconds.items()},
            tokens=pending.tokens,
            device=self._device,
            error=pending.error,
        )

    def _read(self, pending: PendingRequest, text: str | None) -> ParsedAnswer:
        """Return the option or number read from an answer's text, and its score; text None scores 0."""
        if text is None:
            return ParsedAnswer(None, 0.0)
        question, parsing = pending.question, self._options.answer_parsing
        tags = self.reasoning_tags(pending.parts.look)
        # A template may open the tag in the prompt: a reply that is cut then holds no tag at all.
        text = next((start for start, _ in tags if pending.prompt_end.endswith(start)), "") + text
        # Where lmms-eval's rule is not known here, only options can be read, and strictly; the task scores the rest.
        rule = pending.benchmark.facts.lmms_eval_parsing if pending.benchmark is not None else ""
        if rule or (question.options and parsing == "strict"):
            return read_answer(
                question, text, answer_parsing=parsing, rule=rule, seed=self._options.seed, reasoning_tags=tags
            )
        task = task_of(pending.request)
        return task_score(task, question, pending.document, text, seed=self._options.seed, reasoning_tags=tags)

    def reasoning_tags(self, look: Any) -> TagPairs:
        """Return the pairs of tags that lmms-eval removes, with what is between them, from replies; else the default.

        Args:
            look: the request's `doc_to_visual` or `doc_to_messages`, a bound method of the task.
        """
        from lmms_eval.api.reasoning import parse_reasoning_tags_config

        stated = getattr(getattr(getattr(look, "__self__", None), "config", None), "reasoning_tags", None)
        stated = self.stated_reasoning_tags if stated is None else stated
        return parse_reasoning_tags_config(task_value=REASONING_TAGS if stated is None else stated) or ()


def answer_text(output: Any) -> str:
    """Return the whole text of a wrapper's output, which is a string or lmms-eval's `GenerationResult`."""
    from lmms_eval.api.instance import unwrap_generation_output

    text, _ = unwrap_generation_output(output)
    return text.whole if isinstance(text, StrippedReply) else str(text)


#     RECORD/CELL/cell.json                  what the rows are
#     RECORD/CELL/prompt.json                what the model was sent first
#     RECORD/CELL/selections/rank0of1.jsonl  a SelectionRow per question
#     RECORD/CELL/answers/rank0of1.jsonl     an AnswerRow per question
#
# CELL ends in a hash over all that can change an answer: the model with its arguments, exact weights and versions, the
# selection, and the task with its split and generation arguments. So another task has rows of its own, while the same
# command finds its rows again, and with a larger `--limit` asks only for what is new. Nothing written is ever deleted.


class FolderRecorder(Recorder):
    """Writes the rows of one rank below `options.record`, one folder per cell. A file is created with its first row.

    Args:
        model, stock_name: names of the model, and of lmms-eval's wrapper behind it, under which tasks may have prompts.
        packages: whose versions can change an answer.
        pretrained: folder or hub name of the loaded checkpoint; "" for none.
        prepared: result of the adapter's `prepare`; its text becomes part of the cell's identity.
        requests: "simple" for simple requests to a model that takes chat requests too, else "".
        selection_id: hash over all that can change a selection; "native" for the wrapper's own sampling.
        selection: everything behind that hash, for the description; {} for the wrapper's own sampling.
        frames: frames per question.
    """

    def __init__(
        self,
        options: AdapterOptions,
        *,
        model: str,
        stock_name: str,
        packages: Sequence[str],
        wrapper_arguments: Mapping[str, Any],
        pretrained: str,
        prepared: Any,
        requests: str,
        selection_id: str,
        selection: Mapping[str, Any],
        frames: int,
        rank_and_world: tuple[int, int],
    ) -> None:
        device = wrapper_arguments.get("device")
        super().__init__(
            model=model,
            options=options,
            selection_id=selection_id,
            device=device_name(str(device)) if device else "",
        )
        self.folder = Path(options.record)
        self._name = f"{model}-{options.sampler or Path(options.selections).stem}-k{frames}-seed{options.seed}"
        revision = str(wrapper_arguments.get("revision") or "main")
        folder = weights_folder(pretrained, revision) if pretrained else None
        for damaged in damage_lines(folder) if folder is not None else []:
            raise RunError(damaged)
        is_exact = gives_exact_pixels(options.backend)
        # Everything that can change an answer, except task, split and generation arguments.
        self._identity = {
            "model": model,
            "packages": packages,
            "arguments": wrapper_arguments,
            "weights": weights_identity(pretrained, revision),
            "adapter": str(prepared) if prepared is not None else "",
            "selection": selection_id,
            "frames": frames,
            "frame_policy": options.frame_policy,
            "answer_parsing": options.answer_parsing,
            **({"requests": requests} if requests else {}),
            # The id of replayed rows tells nothing of the reader that shows their frames.
            **({"video_backend": options.backend} if options.selections and not is_exact else {}),
        }
        self._selection = selection
        self._stock_name = stock_name
        self._rank, world = rank_and_world
        self._file_name = f"rank{self._rank}of{world}.jsonl"

    def cell_of(self, parts: RequestParts) -> OpenCell:
        """Return the request's cell: its id is a hash of its whole identity, its folder's name has the hash's start."""
        identity = self._cell_identity(parts)
        full = identity_hash(identity)
        if full not in self._cells:
            former_cell = f"{parts.task}-{self._name}-{full[:8]}".replace("/", "_")
            cell = former_cell.replace(":", "_")  # of `sampler=FILE.py:Class`; some systems refuse it in a name
            # Rows of an earlier start stay where they are, and are gone on with.
            is_former = cell != former_cell and (self.folder / former_cell).is_dir()
            names = CellNames(cell_id=full, cell=former_cell if is_former else cell)
            path = self.folder / names.cell
            self._cells[full] = OpenCell(
                path,
                names,
                file_name=self._file_name,
                rows={AnswerRow: path / "answers", SelectionRow: path / "selections"},
                # Ranks share the folder; the first of them describes it.
                description=partial(self._description, names, identity) if self._rank == 0 else None,
                refusal="another run writes here; wait for it, or give record= another folder",
            )
        return self._cells[full]

    def earlier(self, pending: PendingRequest) -> AnswerRow | None:
        """Return the answer row of an earlier start without an error; None if there is none."""
        return self.cell_of(pending.parts).earlier(AnswerRow, pending.question.id)

    def earlier_selection(self, pending: PendingRequest) -> SelectionRow | None:
        """Return the selection row of an earlier start without an error; None if there is none."""
        return self.cell_of(pending.parts).earlier(SelectionRow, pending.question.id)

    def _cell_identity(self, parts: RequestParts) -> dict[str, Any]:
        """Return everything that can change an answer of the request's cell: options, task, generation, prompts."""
        stated_values = {key: value for key, value in parts.generation.items() if value is not None}
        # Through JSON, so that a tuple and a list give one hash.
        generation = json.loads(json.dumps(stated_values, default=str))
        identity = {**self._identity, "task": parts.task, "split": parts.split, "generation": generation}
        # Left out where they are as usual, so that ids made before there was a choice stay the same.
        prompts = prompts_of_request(parts.look, self._model, self._stock_name)
        unusual_fields: dict[str, Any] = {} if prompts == DEFAULT else {"prompts": prompts}
        tags = [list(pair) for pair in self.reasoning_tags(parts.look)]
        if tags != [list(pair) for pair in REASONING_TAGS]:
            unusual_fields["reasoning_tags"] = tags
        return answer_identity(**identity, **unusual_fields)

    def _description(self, names: CellNames, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the cell's `cell.json`: its identity, the selection behind it, device and versions."""
        document = {
            "name": names.cell,
            "identity": identity,
            "selection": self._selection,
            "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "device": self._device,
            "git": git_revision(),
            "versions": versions(),
        }
        as_json: dict[str, Any] = json.loads(json.dumps(document, default=str))
        return as_json


@dataclass
class RunCounts:
    """Counts of a run: its questions, those that an earlier start answered, errors, answers by how they were read.

    Args:
        unparsed: answers from which no option could be read.
        cut: those of them that end while the model is still thinking.
        readable: answers that could be read and are not blank.
        fallbacks: questions for which the model was fed other frames than the chosen ones.
        first_error, first_unread: question id and error, or answer, of the first that failed or could not be read.
    """

    questions: int = 0
    earlier: int = 0
    errors: int = 0
    unparsed: int = 0
    cut: int = 0
    readable: int = 0
    fallbacks: int = 0
    first_error: str = ""
    first_unread: str = ""

    def add(self, row: AnswerRow) -> None:
        """Count a row."""
        self.questions += 1
        self.unparsed += row.is_unparsed
        self.cut += row.is_cut
        self.readable += row.is_readable
        self.fallbacks += row.fallback is not None
        if row.error is not None:
            self.errors += 1
            self.first_error = self.first_error or f"{row.question_id}: {row.error}"
        elif not row.is_readable:
            self.first_unread = self.first_unread or f"{row.question_id}: {row.answer!r:.80}"

    def summary(self) -> str:
        """Return the counts as a phrase for the log."""
        return (
            f"{self.questions} questions ({self.earlier} answered earlier), {self.errors} errors, "
            f"{self.unparsed} unparsed answers ({self.cut} cut off while thinking), "
            f"{self.fallbacks} fed other frames than the chosen ones"
        )


def over_all_ranks(counts: RunCounts) -> RunCounts:
    """Return `counts` summed over all ranks of a distributed run, on every rank; otherwise `counts` itself."""
    # Not imported: a run that never loaded it is not distributed.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return counts
    parts: list[Any] = [None] * distributed.get_world_size()
    # Collective: it returns only when every rank has called it, also those without an error.
    distributed.all_gather_object(parts, counts)
    total = RunCounts()
    for part in parts:
        for name, value in vars(part).items():
            # Counts add up; a text is that of the first rank that has one.
            value_so_far = getattr(total, name)
            setattr(total, name, value_so_far or value if isinstance(value, str) else value_so_far + value)
    return total


def check_error_share(counts: RunCounts, limit: float) -> None:
    """Raise RunError, with the first error, if the share of questions with an error is above `limit`.

    Called at the end of a run.
    """
    if counts.questions and counts.errors / counts.questions > limit:
        raise RunError(
            f"{counts.errors} of {counts.questions} questions have no answer, more than max_error_share={limit:g} "
            f"allows; the first: {counts.first_error}"
        )


def check_readable(counts: RunCounts, *, allow_unparsed: bool) -> None:
    """Raise RunError, with the first failure, if no question got an answer that could be read.

    Args:
        allow_unparsed: accept answers that cannot be read, but not a run in which all questions failed.
    """
    are_accepted = allow_unparsed and counts.errors < counts.questions
    if counts.questions and not counts.readable and not are_accepted:
        raise RunError(
            f"none of {counts.questions} questions has an answer that could be read; the first: "
            f"{counts.first_error or counts.first_unread}: is it the service, the model, its weights or the prompt? "
            "Ask again with another record= folder, or accept such answers with allow_unparsed=true"
        )
