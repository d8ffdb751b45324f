"""Reads replies, opens the cells of a run of the plugin in the folder of `record=`, and counts their rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from focus_eval.bench.answering.cell import Cell, CellSettings, describe_part
from focus_eval.bench.answering.choosing import Chooser
from focus_eval.bench.answering.questions import ModelReply, RequestParts, TaskQuestion
from focus_eval.bench.lmms.arguments import NATIVE, AdapterOptions
from focus_eval.bench.lmms.parsing import REASONING_TAGS, StrippedReply, TagPairs, read_answer
from focus_eval.bench.lmms.tasks import DEFAULT, prompts_for, task_score
from focus_eval.bench.rows.store import describe_run
from focus_eval.core.errors import RunError
from focus_eval.core.types import AnswerParsing
from focus_eval.keyframes.encoders.weights import damage_lines, weights_folder, weights_identity
from focus_eval.keyframes.pipeline.timing import device_name
from focus_eval.keyframes.rows.files import locked_at_once
from focus_eval.keyframes.rows.identity import answer_identity, identity_hash
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, SelectionRow
from focus_eval.keyframes.video import gives_exact_pixels


@dataclass(frozen=True, kw_only=True)
class ReplyReader:
    """Reads the option or number that a reply names, and its score.

    Args:
        answer_parsing: "strict" or "lmms_eval".
        seed: seed of lmms-eval's random guesses.
        reasoning_tags: pairs of tags; what a reply has between them is not read.
    """

    answer_parsing: AnswerParsing
    seed: int
    reasoning_tags: TagPairs = REASONING_TAGS

    def __call__(self, task_question: TaskQuestion, reply: ModelReply) -> Mapping[str, object]:
        """Return the fields of a row that depend on the reply's text."""
        question, benchmark, tags = task_question.question, task_question.benchmark, self.reasoning_tags
        whole_text = answer_text(reply.output)
        # The prompt may end with the opening tag; put that tag before the reply, so that a cut reply is recognised.
        text = next((start for start, _ in tags if reply.prompt_end.endswith(start)), "") + whole_text
        # If lmms-eval has no known rule for the benchmark, only options under "strict" are read here; the task scores
        # all other answers.
        rule = benchmark.facts.lmms_eval_parsing if benchmark is not None else ""
        if rule or (question.options and self.answer_parsing == "strict"):
            answer = read_answer(
                question, text, answer_parsing=self.answer_parsing, rule=rule, seed=self.seed, reasoning_tags=tags
            )
        else:
            task = task_question.parts.task_object
            answer = task_score(task, question, task_question.document, text, seed=self.seed, reasoning_tags=tags)
        return {"answer": whole_text, **vars(answer)}


def reasoning_tags_of(parts: RequestParts, stated_tags: str | TagPairs | None) -> TagPairs:
    """Return the pairs of tags that lmms-eval removes from replies to a request, with the text between them.

    The task's own tags count first, then `stated_tags`, then lmms-eval's default.

    Args:
        stated_tags: tags that lmms-eval's command line (as JSON) or the matrix's model states; None if neither does.
    """
    from lmms_eval.api.reasoning import parse_reasoning_tags_config

    own_tags = getattr(getattr(parts.task_object, "config", None), "reasoning_tags", None)
    own_tags = stated_tags if own_tags is None else own_tags
    return parse_reasoning_tags_config(task_value=REASONING_TAGS if own_tags is None else own_tags) or ()


def answer_text(output: object) -> str:
    """Return the whole text of a wrapper's output, which is a string or lmms-eval's `GenerationResult`."""
    from lmms_eval.api.instance import unwrap_generation_output

    text, _ = unwrap_generation_output(output)
    return text.whole if isinstance(text, StrippedReply) else str(text)


# Each cell is a run (`answering.cell`) in the folder RECORD/CELL.
#
# CELL ends in a hash over all that can change an answer: the model with its arguments, exact weights and versions, the
# selection, and the task with its split and generation arguments. So another task has rows of its own. The same
# command finds its rows again; with a larger `--limit` it asks only questions without a row. No row is ever deleted.


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A loaded model as its cells describe it.

    Args:
        name: the model's name.
        stock_name: lmms-eval's name of the wrapper behind it, under which tasks may have prompts.
        device: readable name of its device; "" if unknown.
        identity: the parts of a cell's identity (`answer_identity`) that depend on the model alone.
    """

    name: str
    stock_name: str
    device: str
    identity: Mapping[str, object]


def describe_model(
    name: str,
    *,
    stock_name: str,
    packages: Sequence[str],
    arguments: Mapping[str, object],
    pretrained: str,
    prepared: object,
    requests: str,
) -> LoadedModel:
    """Return a loaded model's description, with a hash of its weights.

    Args:
        name, stock_name: as in `LoadedModel`.
        packages: packages whose versions can change an answer.
        arguments: of the wrapper, by name.
        pretrained: folder or hub name of the loaded checkpoint; "" for none.
        prepared: result of the adapter's `prepare`; its text becomes part of the identity.
        requests: "simple" for simple requests to a model that takes chat requests too, else "".

    Raises:
        RunError: a file of the checkpoint is damaged.
    """
    device, revision = arguments.get("device"), str(arguments.get("revision") or "main")
    folder = weights_folder(pretrained, revision) if pretrained else None
    for damaged in damage_lines(folder) if folder is not None else []:
        raise RunError(damaged)
    identity: dict[str, object] = {
        "model": name,
        "packages": packages,
        "arguments": arguments,
        "weights": weights_identity(pretrained, revision),
        "adapter": str(prepared) if prepared is not None else "",
        **({"requests": requests} if requests else {}),
    }
    device_text = device_name(str(device)) if device else ""
    return LoadedModel(name=name, stock_name=stock_name, device=device_text, identity=identity)


class RecordFolder:
    """The cells of one model with one selection below `options.record`, one per task.

    Args:
        chooser: chooses the frames; None for the wrapper's own sampling.
        frames: frames per question.
    """

    def __init__(
        self,
        options: AdapterOptions,
        model: LoadedModel,
        *,
        chooser: Chooser | None,
        frames: int,
        rank_and_world: tuple[int, int],
    ) -> None:
        self.folder = Path(options.record)
        self._options = options
        self._model = model
        self._frames = frames
        self._selection_name = f"{options.sampler or Path(options.selections).stem}-k{frames}-seed{options.seed}"
        self._selection_id = chooser.selection_id if chooser else NATIVE
        is_exact = gives_exact_pixels(options.backend)
        # Everything that can change an answer, except task, split and generation arguments.
        self._identity: dict[str, Any] = {
            **model.identity,
            "selection": chooser.identity if chooser else {},
            "frames": frames,
            "frame_policy": options.frame_policy,
            "answer_parsing": options.answer_parsing,
            # The id of replayed selections does not depend on the video reader, so name a reader with inexact pixels.
            **({"video_backend": options.backend} if options.selections and not is_exact else {}),
        }
        self._rank, world = rank_and_world
        self._writer = f"rank{self._rank}of{world}"
        self._cells: dict[tuple[str, str, str, str | None, str], Cell] = {}

    def cell_of(self, parts: RequestParts, *, stated_tags: str | None = None, subtitles: str = "") -> Cell:
        """Return the cell of a request.

        The cell's id is a hash of its whole identity. The name of its folder ends in the first 8 digits of the hash.

        Args:
            stated_tags: as in `reasoning_tags_of`.
            subtitles: the `SubtitleChoice` as text; "" for a task without subtitles.
        """
        stated_values = {name: value for name, value in parts.generation.items() if value is not None}
        # Convert through JSON, so that a tuple and a list give the same hash.
        generation = json.dumps(stated_values, default=str)
        key = (parts.task, parts.split, generation, stated_tags, subtitles)
        if key not in self._cells:
            # An identity takes milliseconds: it is computed when the cell is opened, not for every answer.
            self._cells[key] = self._open_cell(parts, json.loads(generation), stated_tags, subtitles)
        return self._cells[key]

    def close(self) -> None:
        """Close the files of all cells; a later row opens its file again."""
        for cell in self._cells.values():
            cell.close()

    def _open_cell(
        self, parts: RequestParts, generation: Mapping[str, object], stated_tags: str | None, subtitles: str
    ) -> Cell:
        options = self._options
        tags = reasoning_tags_of(parts, stated_tags)
        identity = self._cell_identity(parts, generation, tags)
        # The identity of a task without subtitles has no such field.
        identity |= {"subtitles": subtitles} if subtitles else {}
        # Convert through JSON, because a wrapper's arguments may be objects of any type.
        identity = json.loads(json.dumps(identity, default=str))
        full = identity_hash(identity)
        name = _folder_name(f"{parts.task}-{self._model.name}-{self._selection_name}", full)
        settings = CellSettings(
            names=CellNames(cell_id=full, cell=name),
            # The name tells subtitles apart, so that reports show prompts with subtitles as a series of their own.
            model=self._model.name + (f", subtitles {subtitles}" if subtitles else ""),
            frames=self._frames,
            selection_id=self._selection_id,
            read=ReplyReader(answer_parsing=options.answer_parsing, seed=options.seed, reasoning_tags=tags),
            frame_policy=options.frame_policy,
            query=options.query,
            device=self._model.device,
        )
        selections = self.folder / name / "selections" / _folder_name(self._selection_name, self._selection_id)
        answers = self.folder / name / "answers" / name
        return Cell(
            settings,
            answers=answers,
            selections=selections,
            file_name=f"rows-{self._writer}.jsonl",
            writing=partial(self._writing, name, identity, selections, answers),
        )

    @contextmanager
    def _writing(self, name: str, identity: Mapping[str, Any], selections: Path, answers: Path) -> Iterator[None]:
        """Hold this rank's lock on a cell, and describe its folders; the first rank describes the run."""
        run = self.folder / name
        run.mkdir(parents=True, exist_ok=True)
        refusal = "another run writes here; wait for it, or give record= another folder"
        # One lock per rank, since the ranks of a run write in parallel.
        with locked_at_once(run / f".{self._writer}.lock", refusal):
            if self._rank == 0:
                describe_run(run, name=name, engine="lmms-eval", device=self._model.device)
            # By every rank, since any of them may be the first that writes a row or the prompt record.
            if identity["selection"]:
                describe_part(selections, SelectionRow, name=selections.name, identity=identity["selection"])
            describe_part(answers, AnswerRow, name=name, identity=identity)
            yield

    def _cell_identity(self, parts: RequestParts, generation: Mapping[str, object], tags: TagPairs) -> dict[str, Any]:
        """Everything that can change an answer of the request's cell: options, task, generation, prompts."""
        identity = {**self._identity, "task": parts.task, "split": parts.split, "generation": generation}
        # Omit default prompts and tags, so that ids from before these fields existed stay the same.
        task = parts.task_object
        prompts = DEFAULT
        if task is not None:
            prompts = prompts_for(vars(task.config), self._model.name, self._model.stock_name)
        unusual_fields: dict[str, Any] = {} if prompts == DEFAULT else {"prompts": prompts}
        if [list(pair) for pair in tags] != [list(pair) for pair in REASONING_TAGS]:
            unusual_fields["reasoning_tags"] = [list(pair) for pair in tags]
        return answer_identity(**identity, **unusual_fields)


def _folder_name(text: str, full_hash: str) -> str:
    # `sampler=FILE.py:Class` has a colon, which some systems refuse in a file name.
    return f"{text}-{full_hash[:8]}".replace("/", "_").replace(":", "_")


@dataclass
class RunCounts:
    """Counts of a run: its questions, those that an earlier start answered, errors, answers by how they were read.

    Args:
        unparsed: answers from which no option could be read.
        cut: answers that end while the model is still thinking.
        readable: answers that could be read and are not blank.
        fallbacks: questions for which the model was fed other frames than the chosen ones.
        first_error: id and error of the first question that failed; "" for none.
        first_unread: id and answer of the first question whose answer could not be read; "" for none.
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
    # Do not import torch: a process that has not loaded it is not distributed.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return counts
    parts: list[Any] = [None] * distributed.get_world_size()
    # Every rank has to call this, even one without errors: the call returns only when all have made it.
    distributed.all_gather_object(parts, counts)
    total = RunCounts()
    for part in parts:
        for name, value in vars(part).items():
            # Add numbers up; of the texts, keep that of the first rank that has one.
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
