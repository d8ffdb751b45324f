"""Loads the rows of a run into data frames."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.question import RECALL_SECONDS, BenchmarkFacts
from focus_eval.bench.benchmarks.registry import facts_of
from focus_eval.bench.report.cost import CostColumns, charged_seconds
from focus_eval.bench.report.recall import INTERVAL_MEASURES, MEASURES, interval_measures, recall_column, row_measures
from focus_eval.bench.rows.packed import check_links, run_folder
from focus_eval.bench.rows.seen_videos import SeenVideos, read_seen_videos
from focus_eval.bench.rows.store import PROMPT_FILE, Key, StoredRows, run_folders
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import usable_path
from focus_eval.keyframes.rows.files import read_sealed_json
from focus_eval.keyframes.rows.identity import changed_ids, has_row_id, row_key
from focus_eval.keyframes.rows.records import (
    BLOCKING_STAGES,
    CONCURRENT_STAGES,
    DECODE_MODES,
    LLM_USAGE,
    AnswerRow,
    Origin,
    RowT,
    SelectionRow,
    forward_gmacs,
    stated_row,
)

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

_ORDER = ("blind", "uniform", "uniform_1fps", "random", "topk", "aks", "aks_dense", "qframe", "focus", "focus_released")
_LAST = ("oracle",)  # the ceiling is listed last
_ROWS_AT_ONCE = 1024
_MAX_REVISION_TEXT = 20  # characters of a part of a revision that a label shows
_UNKNOWN = float("nan")


def labels_of(rows: Iterable[SelectionRow]) -> dict[str, str]:
    """Return a short unique name by selection id: the sampler, and options that are not default or differ.

    E.g. "focus"; "aks max_depth=3"; "focus alpha=0.25" beside "focus alpha=0.5"; "focus (clip)" if the sampler has
    several encoders, "topk (offline, 96 px)" if they differ in an option; "oracle [ceiling]" for a control, ceiling or
    floor.
    """
    variants: dict[str, SelectionRow] = {}
    for row in rows:
        if row.sampler or row.selection_id not in variants:  # failed rows may lack the sampler
            variants[row.selection_id] = row
    by_sampler: dict[str, list[SelectionRow]] = {}
    for row in variants.values():
        by_sampler.setdefault(row.sampler, []).append(row)
    labels = {}
    for rows_of_sampler in by_sampler.values():
        all_options = [{**row.options, **row.changed_options} for row in rows_of_sampler]
        names = dict.fromkeys(name for options in all_options for name in options)
        differing = {name for name in names if len({str(options.get(name)) for options in all_options}) > 1}
        encoder_by_id = _encoder_texts(rows_of_sampler)
        for row in rows_of_sampler:
            text = _with_options(row, differing)
            text += (
                f" ({encoder_by_id[row.selection_id]})" if len({*encoder_by_id.values()}) > 1 and row.encoder else ""
            )
            labels[row.selection_id] = text + role_mark(row)
    return unique_labels(labels, variants)


def _encoder_texts(rows: Sequence[SelectionRow]) -> dict[str, str]:
    """An encoder's name by selection id, followed by what tells its revision from others: "offline, 96 px"."""
    revisions: dict[str, list[set[str]]] = {}
    for row in rows:
        revisions.setdefault(row.encoder, []).append({*row.encoder_revision.split(", ")})
    texts = {}
    for row in rows:
        common = set.intersection(*revisions[row.encoder])
        own_parts = [part for part in row.encoder_revision.split(", ") if part and part not in common]
        # A 40-digit commit is no readable label: use the start of the selection id.
        texts[row.selection_id] = ", ".join(
            [row.encoder, *(part for part in own_parts if len(part) <= _MAX_REVISION_TEXT)]
        )
    return texts


def series_text(row: SelectionRow, *, hidden: Iterable[str] = ()) -> str:
    """Return the sampler's name, its options that are not default and not named in `hidden`, and its `role_mark`."""
    return _with_options(row, (), hidden) + role_mark(row)


def _with_options(row: SelectionRow, differing: Iterable[str], hidden: Iterable[str] = ()) -> str:
    """The sampler's name with its options that are not default or in `differing`, less those in `hidden`."""
    options = {**row.options, **row.changed_options}
    # Omit an option that is None where another variant sets it: "even_cover" and "even_cover budget_of=focus".
    option_names = [name for name in options if name in row.changed_options or name in set(differing)]
    visible_names = [name for name in option_names if options[name] is not None]
    return " ".join([row.sampler, *(f"{name}={options[name]}" for name in visible_names if name not in hidden)])


def role_mark(row: SelectionRow) -> str:
    """Return " [control]", " [ceiling]" or " [floor]" for such a sampler, "" for an ordinary one."""
    return "" if row.role == "sampler" else _ROLE_MARK.format(row.role)


_ROLE_MARK = " [{}]"
CEILING_MARK = _ROLE_MARK.format("ceiling")


def unique_labels(labels: dict[str, str], variants: Mapping[str, SelectionRow]) -> dict[str, str]:
    """Return `labels`, those of several selections of one k and seed extended by the start of the selection id.

    A folder holds such selections if a matrix was changed and run there again, e.g. with a newer version of a sampler.
    Under one label they would be pooled like seeds of one configuration.

    Args:
        labels: selection id -> label.
        variants: selection id -> one of its rows.
    """
    alike = Counter((labels[key], row.k, row.seed) for key, row in variants.items())
    return {
        key: f"{labels[key]} #{key[:4]}" if alike[labels[key], row.k, row.seed] > 1 else labels[key]
        for key, row in variants.items()
    }


def sampler_order(label: str) -> tuple[int, str]:
    """Return a sort key of labels: floors and baselines first, then the paper's samplers, others, the ceiling."""
    sampler = label.split(" ")[0]
    return (_ORDER.index(sampler) if sampler in _ORDER else len(_ORDER) + (sampler in _LAST), label)


def sampler_groups(frame: pd.DataFrame, keys: list[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Yield (key, lines) of each group by `keys`: benchmark and K ascending, samplers by `sampler_order`."""

    def order(first: pd.Series) -> list[SupportsRichComparison]:
        """Return the sort key of a group."""
        return [sampler_order(first[key]) if key == "label" else first[key] for key in keys]

    return groups_in_order(frame, keys, order)


def groups_in_order(
    frame: pd.DataFrame, keys: Sequence[str], order: Callable[[pd.Series], SupportsRichComparison]
) -> Iterator[tuple[tuple[object, ...], pd.DataFrame]]:
    """Yield (key, lines) of each group by `keys`, one in memory at a time; a missing key is a key.

    Args:
        order: the sort key of a group, from its first line.
    """
    numbers = frame.groupby(list(keys), sort=False, dropna=False).ngroup().to_numpy()
    firsts = [frame.iloc[place] for place in np.unique(numbers, return_index=True)[1].tolist()]
    for number in sorted(range(len(firsts)), key=lambda number: order(firsts[number])):
        yield tuple(firsts[number][key] for key in keys), frame[numbers == number]


class RunRows(Collection[RowT]):
    """The rows in all parts of a run, read from disk at every iteration.

    Args:
        parts: folders of rows.
        kind: `SelectionRow` or `AnswerRow`.
        question_ids: benchmark -> ids of the questions whose rows count; all rows of a benchmark that is no key.
        shared_ids: row key -> question id that replaces the row's own (see `rows.identity`); None replaces none.
    """

    def __init__(
        self,
        parts: Sequence[Path],
        kind: type[RowT],
        question_ids: Mapping[str, set[str]],
        shared_ids: Mapping[Key, str] | None = None,
    ) -> None:
        self._parts = [StoredRows(part, kind) for part in parts]
        self._asked = question_ids
        self._shared_ids = shared_ids or {}

    def __iter__(self) -> Iterator[RowT]:
        return (self._renamed(row) for part in self._parts for row in part if self._is_asked(row.key))

    def without(self, *names: str) -> Iterator[RowT]:
        """Yield the rows with the fields `names` left empty (see `StoredRows.without`)."""
        parts = (row for part in self._parts for row in part.without(*names))
        return (self._renamed(row) for row in parts if self._is_asked(row.key))

    def __len__(self) -> int:
        """Number of rows, counted on disk at every call."""
        return sum(self._is_asked(key) for part in self._parts for key, _ in part.states())

    def __bool__(self) -> bool:
        """True if there is a row; reads no further than the first."""
        return any(self._is_asked(key) for part in self._parts for key, _ in part.states())

    def __contains__(self, row: object) -> bool:
        return any(stored == row for stored in self)

    def in_order(self, keys: Sequence[Key]) -> list[Iterator[RowT]]:
        """Return an iterator per part over its rows whose keys are among `keys`, in the order of `keys`."""
        place = {key: number for number, key in enumerate(keys)}
        own_keys = {(key[0], shared_id, key[2]): key for key, shared_id in self._shared_ids.items()}
        place = {own_keys.get(key, key): number for key, number in place.items()}
        ordered: list[Iterator[RowT]] = []
        for part in self._parts:
            part_keys = sorted((key for key, _ in part.states() if key in place), key=lambda key: place[key])
            if part_keys:
                ordered.append(map(self._renamed, part.in_order(part_keys)))
        return ordered

    def with_shared_ids(self, shared_ids: Mapping[Key, str]) -> RunRows[RowT]:
        """Return these rows with other question ids, by row key."""
        renamed = copy(self)
        renamed._shared_ids = shared_ids
        return renamed

    def _renamed(self, row: RowT) -> RowT:
        """The row under its shared question id, if it has one."""
        shared_id = self._shared_ids.get(row.key) if self._shared_ids else None
        return row if shared_id is None else replace(row, question_id=shared_id)

    def _is_asked(self, key: Key) -> bool:
        """True if the key's question is one of `question_ids`, or its benchmark is no key of it."""
        return key[0] not in self._asked or key[1] in self._asked[key[0]]


def rows_in_order(rows: Collection[RowT], keys: Sequence[Key]) -> Iterator[tuple[tuple[str, str], dict[Key, RowT]]]:
    """Yield each (benchmark, question id) of `keys`, in their order, with its rows by key.

    Keys of one question must be neighbours in `keys`. A key without a row is left out.
    """
    place = {key: number for number, key in enumerate(keys)}
    if isinstance(rows, RunRows):
        parts = rows.in_order(list(place))
    else:
        by_key = {row.key: row for row in rows}
        parts = [iter([by_key[key] for key in place if key in by_key])]
    merged = heapq.merge(*parts, key=lambda row: place[row.key])
    groups = groupby(merged, key=lambda row: row.key[:2])
    present, rows_of_present = next(groups, (None, ()))
    for question in dict.fromkeys(key[:2] for key in keys):
        yield question, {row.key: row for row in rows_of_present} if question == present else {}
        if question == present:
            present, rows_of_present = next(groups, (None, ()))


# Options with the same meaning in FOCUS's public code and in ours.
_ALPHA, _CLIP_SECONDS = ("alpha", "zoom_ratio"), ("clip_seconds", "coarse_every_sec")
# Column key -> options that it shows, which are then left out of the sampler's label.
_SHOWN_IN: Mapping[str, tuple[str, ...]] = {"": (), "alpha": _ALPHA, "clip_seconds": _CLIP_SECONDS}


def _columns_of(rows: Iterable[RowT], line: Callable[[RowT], dict[str, object]]) -> dict[str, object]:
    """Return the columns of a table whose lines `line` makes from the rows: column name -> values.

    All lines have the same columns.
    A run may have a million rows, so equal texts are one object and a column of floats or integers is an array.
    """
    columns: dict[str, Any] = {}
    lines = map(line, rows)
    while part := list(islice(lines, _ROWS_AT_ONCE)):
        if any(len(item) != len(part[0]) for item in part):
            raise RuntimeError("lines of one table have different columns")
        for name in part[0]:
            values = [item[name] for item in part]
            values = [intern(value) if type(value) is str else value for value in values]
            columns[name] = _extended(columns.get(name), values)
    return {name: np.asarray(column) if isinstance(column, array) else column for name, column in columns.items()}


def _extended(column: array[Any] | list[Any] | None, values: list[Any]) -> array[Any] | list[Any]:
    """`column` with `values` appended: an array while all are floats, or all 64-bit integers, else a list."""
    kinds = {type(value) for value in values}
    code = _ARRAY_CODES.get(kinds.pop(), "") if len(kinds) == 1 else ""
    if column is None:
        column = array(code) if code else []
    elif isinstance(column, array) and column.typecode != code:
        column = column.tolist()
    n_before = len(column)
    try:
        column.extend(values)
    except OverflowError:  # an integer above 64 bits
        column = [*column[:n_before], *values]
    return column


_ARRAY_CODES: Mapping[type, str] = {float: "d", int: "q"}


_MEASURE_COLUMNS = (
    *(recall_column(seconds, any_size=any_size) for any_size in (False, True) for seconds in RECALL_SECONDS),
    *MEASURES,
    *INTERVAL_MEASURES,
)


def _selection_line(row: SelectionRow) -> dict[str, object]:
    """The line of a selection row in `Run.selection_frame`: settings, costs, and measures of evidence."""
    length, intervals = row.duration_seconds, row.evidence_intervals
    evidence = [interval[:2] for interval in intervals] if intervals else row.evidence_seconds
    times = row.times_seconds if row.error is None and evidence else None
    measures: dict[str, float | None] = dict.fromkeys(_MEASURE_COLUMNS)
    if times is not None:
        measures |= row_measures(evidence, times, duration_seconds=length, scales=row.scales)
        measures |= interval_measures(intervals, times) if intervals else {}
    n_keyframes = _UNKNOWN if row.keyframes is None else len(row.keyframes)
    none_asked = _UNKNOWN if row.asked.get("calls") else 0
    none_decoded = 0 if row.decoded or row.error is not None else _UNKNOWN
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "content": row_key(row).content,
        "has_row_id": has_row_id(row),
        "prompt": row.facts.get("prompt", ""),
        "group": tuple(row.facts.get("group", ())),
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "label": "",  # set once all variants are known
        "sampler": row.sampler,
        **{f"sampler_text {column}": series_text(row, hidden=hidden) for column, hidden in _SHOWN_IN.items()},
        "encoder": row.encoder,
        "k": row.k,
        "seed": row.seed,
        "alpha": _option(row, _ALPHA),
        "clip_seconds": _option(row, _CLIP_SECONDS),
        "n_keyframes": n_keyframes,
        # Pixels fed, in full frames.
        "full_frames": n_keyframes if row.scales is None else sum(scale**2 for scale in row.scales),
        "n_frames": _UNKNOWN if row.n_frames is None else row.n_frames,
        "duration_seconds": _UNKNOWN if length is None else length,
        "chosen_frames": _frames_number(row.keyframes or ()),
        "n_pulls": row.n_scored,
        "n_distinct_pulls": len(row.encoded_frames),
        "query_cut": bool(row.facts.get("query_cut")),
        "scan_rho": row.facts.get("rho_measured"),
        "has_cost": _has_cost(row),
        "states_cost": forward_gmacs(row.gmacs) is not None,
        "forwards": row.forwards,
        # Two sizes of one encoder differ in the option alone.
        "scan_encoder": row.options.get("scan_encoder") or row.scan_encoder,
        "scan_forwards": row.scan_forwards,
        "llm": row.llm,
        "n_looked": len(row.looked_frames),
        **{f"llm_{usage}": row.asked.get(usage, none_asked) for usage in LLM_USAGE},
        **{f"decoded_{mode}": row.decoded.get(mode, none_decoded) for mode in DECODE_MODES},
        "select_device": row.device,
        "select_seconds": sum(row.seconds.get(stage, 0.0) for stage in BLOCKING_STAGES),
        **{
            f"seconds_{stage}": row.seconds.get(stage, 0.0)
            for stage in (*BLOCKING_STAGES, *CONCURRENT_STAGES, "device")
        },
        **measures,
        "moments": len(evidence),
        "error": row.error,
    }


def _answer_line(row: AnswerRow) -> dict[str, object]:
    """The line of an answer row in `Run.answer_frame`, without the columns of its selection."""
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "cell_id": row.cell_id,
        "cell": row.cell,
        "correct_answer": row.correct_answer,
        "model": row.model,
        "score": float("nan") if row.score is None or row.error is not None else row.score,
        "category": row.category,
        "metric": row.metric,
        "is_answered": row.error is None,
        "is_unparsed": row.is_unparsed,
        "is_cut": row.is_cut,
        "error": row.error,
        "fallback": row.fallback,
        "prompt_note": row.prompt_note,
        "frames_asked": row.frames_asked,
        "frames_fed": row.frames_fed,
        # After a fallback other frames than the chosen ones were fed.
        "fed_frames": _frames_number(() if row.fallback else row.fed_frames),
        "is_below_k": row.error is None and row.frames_fed is not None and row.frames_fed < row.frames_asked,
        "generate_seconds": row.seconds.get("generate", 0.0),
        "answer_device": row.device,
    }


def _frames_number(frames: Sequence[int]) -> float:
    """A hash of a set of frames, NaN for none: the frames of a whole run would fill the memory."""
    return float(hash(tuple(sorted(frames))) & ((1 << 52) - 1)) if frames else float("nan")


def _has_cost(row: SelectionRow) -> bool:
    """True if the row states a cost of choosing, not only frames."""
    came_as_a_file = row.facts.get("published") or row.facts.get("replayed_from")
    has_unknown_frames = row.keyframes is None and row.error is None
    return row.n_scored > 0 or not (came_as_a_file or has_unknown_frames)


def _option(row: SelectionRow, names: Iterable[str]) -> object:
    """The value of the first of `names` that is an option of the row; None if none is."""
    return next((row.options[name] for name in names if name in row.options), None)


@dataclass(frozen=True)
class Run:
    """The rows of one run, and the files that describe it.

    Args:
        name: name of the matrix, else of the folder.
        selections, answers: rows; those of a folder are read again at every iteration.
        provenance: content of `run.json`; empty if there is none.
        made_with: cell -> library versions, exact weights and, under "selection", a mapping of the selection's
            settings, which is empty if only the hash of the settings is known. Holds the cells that recorded these.
        prompts: cell -> first prompt that the model was sent; only cells that recorded it.
        logs: cell -> fields of an imported log's `imports.log_import.LogOrigin`.
        seen_videos: for each part that recorded them, the video files from which its rows were made.
    """

    name: str
    selections: Collection[SelectionRow]
    answers: Collection[AnswerRow]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    logs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seen_videos: Sequence[SeenVideos] = ()

    @cached_property
    def mixed_versions(self) -> tuple[str, ...]:
        """A sentence for each mixture of library versions or of weights of one model; empty if there is none."""
        by_versions: dict[str, set[str]] = {}
        by_model: dict[str, set[str]] = {}
        for model, cell in {(model, cell) for *_, cell, model in self.cells}:
            identity = self.made_with.get(cell, {})
            versions = ", ".join(f"{name} {version}" for name, version in sorted(identity.get("versions", {}).items()))
            if versions:
                by_versions.setdefault(versions, set()).add(model)
            if identity.get("weights"):
                by_model.setdefault(model, set()).add(str(identity["weights"]))
        parts = [f"{', '.join(sorted(models))} with {versions}" for versions, models in sorted(by_versions.items())]
        mixed = ["Answers of several versions: " + "; ".join(parts) + "."] if len(parts) > 1 else []
        mixed += [
            f"Answers of several weights of {model}: {', '.join(sorted(weights))}."
            for model, weights in sorted(by_model.items())
            if len(weights) > 1
        ]
        return tuple(mixed)

    @cached_property
    def faults(self) -> tuple[str, ...]:
        """A sentence if answers were given to other frames than the chosen ones; empty if there are none."""
        lines = self.answer_frame
        if lines.empty or "chosen_frames" not in lines:
            return ()
        are_known = lines["chosen_frames"].notna() & lines["fed_frames"].notna()
        wrong = lines[are_known & (lines["chosen_frames"] != lines["fed_frames"])]
        if wrong.empty:
            return ()
        first = wrong.iloc[0]
        return (
            f"{len(wrong):,} of {int(are_known.sum()):,} answers were given to other frames than the chosen ones "
            f"(first: {first['label']}, {first['model']}, question {first['question_id']}): their accuracy is not "
            "that of the chosen frames. focus-eval audit RUN counts them by series.",
        )

    @property
    def anchors(self) -> str:
        """Name of the published table that this run is compared with; "" if its matrix names none."""
        return str(self.provenance.get("matrix", {}).get("anchors", ""))

    def tasks_of(self, cells: Iterable[str]) -> set[str]:
        """Return lmms-eval's tasks that the cells with these names answered, those that are known."""
        documents = (document for cell in set(cells) for document in (self.made_with.get(cell), self.logs.get(cell)))
        return {str(document["task"]) for document in documents if document and document.get("task")}

    def facts_of(self, benchmark: str) -> BenchmarkFacts:
        """Return the facts of a benchmark as `run.json` states them, else from the benchmark's own file."""
        if benchmark not in self._facts:
            self._facts[benchmark] = facts_of(benchmark, self._stated.get(benchmark))
        return self._facts[benchmark]

    @cached_property
    def _facts(self) -> dict[str, BenchmarkFacts]:
        """Facts of benchmarks that `facts_of` has read, by name."""
        return {}

    @cached_property
    def _stated(self) -> dict[str, Mapping[str, Any]]:
        """Entries of `run.json` on benchmarks, by benchmark name; {} without a matrix."""
        # If the benchmark's file does not state the number of questions, use the run's count.
        n_by_benchmark = self.provenance.get("n_all_questions", {})
        return {
            item["benchmark"]: {**item, "questions": item.get("questions") or n_by_benchmark.get(item["benchmark"])}
            for item in self.provenance.get("matrix", {}).get("benchmarks", [])
        }

    @property
    def cut_queries(self) -> dict[str, tuple[int, int]]:
        """By encoder: the number of questions of which it read only the start, and of all that it read.

        Encoders that cut no question are left out.
        """
        frame = self.selection_frame
        if frame.empty:
            return {}
        question_ids = frame[(frame["encoder"] != "") & frame["error"].isna()]
        question_ids = question_ids.drop_duplicates(["encoder", "benchmark", "question_id"], keep="last")
        return {
            str(encoder): (int(cut.sum()), len(cut))
            for encoder, cut in question_ids.groupby("encoder", sort=False)["query_cut"]
            if cut.any()
        }

    @cached_property
    def pays_its_own(self) -> dict[tuple[str, str], bool]:
        """By (benchmark, selection id): True if the selection made a forward for every frame that it needed.

        Only then are its measured hours comparable with the published ones, which count each frame of each question.
        False if questions of a video shared forwards.
        """
        if self.selection_frame.empty:
            return {}
        sums = self.selection_frame.groupby(["benchmark", "selection_id"])[["forwards", "n_distinct_pulls"]].sum()
        return dict((sums["forwards"] >= sums["n_distinct_pulls"]).items())

    @property
    def variants(self) -> tuple[SelectionRow, ...]:
        """One row of each selection id, without its scored frames: sampler, options, encoder, k and seed."""
        return tuple(self._read_selections[0].values())

    @cached_property
    def labels(self) -> dict[str, str]:
        """The short name of each selection id (see `labels_of`)."""
        return labels_of(self.variants)

    @property
    def models(self) -> tuple[str, ...]:
        """Models that answered, each once, in the order of the cells."""
        return tuple(dict.fromkeys(model for *_, model in self.cells))

    @property
    def cells(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Benchmark, selection id, cell id, cell and model of the answers, each once."""
        keys = ("benchmark", "selection_id", "cell_id", "cell", "model")
        return tuple(dict.fromkeys(zip(*(self._answer_columns.get(key, ()) for key in keys), strict=True)))

    @cached_property
    def selection_frame(self) -> pd.DataFrame:
        """One line per question and selection, with sampler and options, cost, and measures of evidence.

        - as in the row: `benchmark`, `question_id`, `video`, `bucket`, `selection_id`, `sampler`, `encoder`, `k`,
          `seed`, `n_frames`, `duration_seconds`, `forwards`, `scan_encoder`, `scan_forwards`, `llm`, `error`
        - the sampler's name in tables, with its options, without alpha, without clip length: `label`, `sampler_text `,
          `sampler_text alpha`, `sampler_text clip_seconds`; these options: `alpha`, `clip_seconds`
        - the question's key of content, whether its id is a row number, the logged prompt, questions scored together:
          `content`, `has_row_id`, `prompt`, `group`
        - number of keyframes, pixels in full frames, a number that equal keyframes share (the list is in the row):
          `n_keyframes`, `full_frames`, `chosen_frames`
        - frames scored, distinct ones, looked at; the encoder read only the query's start: `n_pulls`,
          `n_distinct_pulls`, `n_looked`, `query_cut`
        - cost, and whether it is known: `n_encoded`, `n_scanned_encoded`, `forward_equivalents`, `has_cost`,
          `states_cost`
        - correlation of scan and relevance: `scan_rho`
        - usage of a model: `llm_calls`, `llm_images`, `llm_input`, `llm_output`, `llm_dollars`
        - frames decoded: `decoded_all`, `decoded_reference`, `decoded_sync`
        - device, seconds it was held, seconds alone: `select_device`, `select_seconds`, `charged_seconds`
        - seconds by stage: `seconds_open`, `seconds_scan`, `seconds_encode`, `seconds_ask`, `seconds_select`,
          `seconds_idle`, `seconds_decode`, `seconds_preprocess`, `seconds_device`
        - recall in [0, 1], other measures, moments annotated: `recall@1`, `recall@2`, `recall@5`, `recall@1 any size`,
          `recall@2 any size`, `recall@5 any size`, `nearness`, `near_frames`, `spread`, `hit`, `coverage`, `UKSS`,
          `moments`
        """
        frame = self._read_selections[1]
        if not frame.empty:
            frame["label"] = frame["selection_id"].map(self.labels)
            frame["charged_seconds"] = charged_seconds(frame)
        return frame

    @cached_property
    def answer_frame(self) -> pd.DataFrame:
        """One line per answer with the columns of its selection.

        And those of the row: `cell_id`, `cell`, `model`, `correct_answer`, `score`, `category`, `type`, `metric`,
        `is_answered`, `is_unparsed`, `is_cut`, `fallback`, `prompt_note`, `frames_asked`, `frames_fed`, `fed_frames`,
        `is_below_k`, `generate_seconds`, `answer_device`.

        Raises:
            InvalidInput: an answer without its selection, or answers of a model in two cells from the same frames.
        """
        lines: pd.DataFrame = pd.DataFrame(self._answer_columns)
        _refuse_two_cells(self.name, lines)
        if lines.empty:
            return lines
        pairs = list(zip(lines["benchmark"], lines["category"], strict=True))
        # "" for a benchmark that is reported as the mean over questions.
        types = {(name, category): self.facts_of(name).strata([category]) or [""] for name, category in set(pairs)}
        lines["type"] = [types[pair][0] for pair in pairs]
        if self.selection_frame.empty:
            return lines
        keys = ["benchmark", "question_id", "selection_id"]
        selection_columns = self.selection_frame.drop(columns=["video", "bucket", "error"])
        joined: pd.DataFrame = lines.merge(selection_columns, on=keys, how="left", validate="many_to_one")
        missing = joined[joined["label"].isna()]
        if len(missing):
            first = missing.iloc[0]
            raise InvalidInput(
                f"{self.name}: {len(missing)} answers without their selection, the first is {first['question_id']!r}"
            )
        return joined

    @cached_property
    def _read_selections(self) -> tuple[dict[str, SelectionRow], pd.DataFrame]:
        """One row by selection id, and the frame of all selections, from a single pass over the rows."""
        variants: dict[str, SelectionRow] = {}
        costs = CostColumns()
        # Tables need only counts of pulls: drop the lists, which take most of a row.
        rows = _without_pulls(self.selections)

        def line(row: SelectionRow) -> dict[str, object]:
            """Return the line of a row; also note its variant and its cost."""
            if row.sampler or row.selection_id not in variants:  # failed rows may lack the sampler
                variants[row.selection_id] = row
            costs.add(row, has_cost=_has_cost(row))
            return _selection_line(row)

        columns = _columns_of(rows, line)
        variants = {selection_id: row.without_pulls() for selection_id, row in variants.items()}
        return variants, pd.DataFrame({**columns, **costs.columns()}, copy=False)

    @cached_property
    def _answer_columns(self) -> dict[str, object]:
        """Columns of the answers: column name -> values, in the order of the rows."""
        return _columns_of(self.answers, _answer_line)


def is_run_path(path: Path) -> bool:
    """Return True for a packed run, or a folder with `selections/` or `answers/`."""
    return path.suffix == ".zip" or any((path / kind).is_dir() for kind in ("selections", "answers"))


def load_run(folder: str | Path) -> Run:
    """Return the run in a folder with `selections/` and `answers/`, or in a packed run (`focus-eval pack`).

    >>> run = load_run("results/runs/example")
    >>> len(run.selection_frame) == len(run.selections)
    True

    Its rows may be JSON lines or Parquet, in one part or many.

    Raises:
        InvalidInput: no such folder, no rows, a part that is a link to nowhere, or a damaged file; names it.
    """
    return _with_shared_ids(_stored_run(_checked_folder(folder)))


def load_runs(folders: Sequence[str | Path]) -> Run:
    """Return the runs in `folders` as one run; a row that several of them hold counts once.

    Raises:
        InvalidInput: as `load_run`.
    """
    if len(folders) == 1:
        return load_run(folders[0])
    return joined_run([_stored_run(_checked_folder(folder)) for folder in folders])


def joined_run(runs: Sequence[Run], name: str = "") -> Run:
    """Return the rows of several runs as one run; without `name` it has the names of all, joined by commas."""
    return _with_shared_ids(
        Run(
            name or ", ".join(run.name for run in runs),
            list({row.key: row for run in runs for row in run.selections}.values()),
            list({row.key: row for run in runs for row in run.answers}.values()),
            made_with={cell: identity for run in runs for cell, identity in run.made_with.items()},
            logs={cell: log for run in runs for cell, log in run.logs.items()},
            seen_videos=[record for run in runs for record in run.seen_videos],
        )
    )


def _checked_folder(folder: str | Path) -> Path:
    """The folder of a run, unpacked if need be; refuses one that does not exist or has broken links."""
    path = run_folder(usable_path(folder, "a run"))
    if not path.is_dir():
        raise InvalidInput(f"{path}: no such folder; a run is a folder with selections/ and answers/")
    check_links(path)
    return path


def _stored_run(path: Path) -> Run:
    """The run in the folder `path`, with the question ids that its rows have on disk."""
    file = path / "run.json"
    provenance = read_sealed_json(file) if file.exists() else {}
    question_ids = {name: set(ids) for name, ids in provenance.get("asked", {}).items()}
    selections: Collection[SelectionRow] = RunRows(_parts(path / "selections"), SelectionRow, question_ids)
    answers = RunRows(_parts(path / "answers"), AnswerRow, question_ids)
    if not selections:
        selections = [_unknown_selection(row) for row in answers]
    if not selections and not answers:
        names = [folder.name for folder in run_folders(path)]
        hint = f"its folders hold runs, name one: {', '.join(names)}" if names else "has the run begun?"
        raise InvalidInput(f"{path}: no rows under selections/ or answers/; {hint}")
    name = str(provenance.get("name") or path.resolve().name)
    for description in sorted((path / "selections").glob("*/spec.json")):
        read_sealed_json(description)  # validate only: damage in the folder is reported
    identities, logs = _cell_documents(path)
    prompt_files = sorted((path / "answers").glob(f"*/{PROMPT_FILE}"))
    prompts = {_cell_name(file.parent): read_sealed_json(file) for file in prompt_files}
    records = [read_seen_videos(part) for kind in ("selections", "answers") for part in _parts(path / kind)]
    return Run(
        name,
        selections,
        answers,
        provenance,
        made_with=identities,
        prompts=prompts,
        logs=logs,
        seen_videos=[item for item in records if item.videos],
    )


def _unknown_selection(row: AnswerRow) -> SelectionRow:
    """The selection behind an answer for which a model's wrapper sampled by itself: its frames are unknown."""
    origin = Origin(selection_id=row.selection_id, sampler=row.selection_id, k=row.frames_asked)
    origin_fields = {"benchmark": row.benchmark, "video": row.video, "bucket": row.bucket}
    return stated_row(row.question_id, origin, **origin_fields, keyframes=None, times_seconds=None)


def _with_shared_ids(run: Run) -> Run:
    """`run` with question ids changed so that imported logs share an id exactly for the same question."""
    if len(run.logs) < 2 or not any(map(has_row_id, _without_pulls(run.selections))):
        return run
    changed = changed_ids(run.selections, run.answers)
    if not changed:
        return run
    answers = {
        row.key: changed[row_id]
        for row in run.answers
        if (row_id := (row.benchmark, row.question_id, row.selection_id)) in changed
    }
    return replace(run, selections=_renamed(run.selections, changed), answers=_renamed(run.answers, answers))


def _without_pulls(rows: Collection[SelectionRow]) -> Iterable[SelectionRow]:
    """`rows` without relevance of pulls and clips if they are read from files; others unchanged."""
    return rows.without("pulled_relevance", "clips") if isinstance(rows, RunRows) else rows


def _renamed(rows: Collection[RowT], shared_ids: Mapping[Key, str]) -> Collection[RowT]:
    """`rows` with the question ids in `shared_ids`, by row key."""
    if isinstance(rows, RunRows):
        return rows.with_shared_ids(shared_ids)
    return [replace(row, question_id=shared_ids[row.key]) if row.key in shared_ids else row for row in rows]


def _refuse_two_cells(name: str, answers: pd.DataFrame) -> None:
    """Raise InvalidInput if a model answered a question from one selection in two cells.

    Args:
        name: name of the run, for the message.
    """
    if answers.empty or answers["cell_id"].nunique() < 2:
        return
    keys = ["benchmark", "question_id", "model", "selection_id"]
    first = answers.groupby(keys, sort=False)["cell_id"].transform("first")
    for row in answers[answers["cell_id"] != first].itertuples():
        raise InvalidInput(
            f"{name}: {row.model} answered {row.question_id!r} in two cells from the same frames "
            f"({row.cell} is one): the matrix was changed between runs; give the newer one its own folder (--out)"
        )


def _cell_documents(folder: Path) -> tuple[dict[str, Mapping[str, object]], dict[str, Mapping[str, object]]]:
    """The identity by cell, and the `LogOrigin` fields of imported logs by cell, from the files `cell.json`."""
    identities: dict[str, Mapping[str, object]] = {}
    logs: dict[str, Mapping[str, object]] = {}
    for file in sorted((folder / "answers").glob("*/cell.json")):
        document, name = read_sealed_json(file), _cell_name(file.parent)
        identities[name] = document.get("identity", {})
        if "log" in document:
            logs[str(document.get("cell") or name)] = document["log"]
    return identities, logs


def _cell_name(folder: Path) -> str:
    """The name of the cell in `folder` as its description states it, else that of the folder."""
    file = folder / "cell.json"
    name = read_sealed_json(file).get("name") if file.is_file() else ""
    return str(name or folder.resolve().name)


def _parts(folder: Path) -> list[Path]:
    """`folder` and the folders in it, which may each hold rows; empty if it does not exist."""
    if not folder.is_dir():
        return []
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
