"""Loads the rows of a run into data frames."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import RECALL_SECONDS
from focus_eval.benchmarks.question import BenchmarkFacts
from focus_eval.benchmarks.registry import facts_of
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import frozen_floats, usable_path
from focus_eval.report.cost import CostColumns, charged_seconds
from focus_eval.report.nearness import near_frames, nearness, spread
from focus_eval.report.recall import recall_column, recall_within
from focus_eval.rows.packed import check_links, run_folder
from focus_eval.rows.records import (
    ASKED,
    BESIDE_STAGES,
    DECODED,
    HELD_STAGES,
    AnswerRow,
    RowT,
    SelectionRow,
    forward_gmacs,
)
from focus_eval.rows.sealed import read_sealed_json
from focus_eval.rows.store import PROMPT_FILE, Key, StoredRows

_ORDER = ("blind", "uniform", "uniform_1fps", "random", "topk", "aks", "aks_dense", "qframe", "focus", "focus_released")
_LAST = ("oracle",)  # the ceiling, below all that it bounds
_ROWS_AT_ONCE = 64


def labels_of(rows: Iterable[SelectionRow]) -> dict[str, str]:
    """Return a short name per selection id: the sampler, options that are not default, what distinguishes variants.

    "focus" alone; "aks max_depth=3"; "focus alpha=0.25" and "focus alpha=0.5" where both are there; "focus (clip)"
    among encoders; "oracle [ceiling]" for what is no ordinary sampler.
    """
    variants: dict[str, SelectionRow] = {}
    for row in rows:
        if row.sampler or row.selection_id not in variants:  # a failed row may not say who was to choose
            variants[row.selection_id] = row
    by_sampler: dict[str, list[SelectionRow]] = {}
    for row in variants.values():
        by_sampler.setdefault(row.sampler, []).append(row)
    labels = {}
    for same in by_sampler.values():
        every = [{**row.options, **row.changed_options} for row in same]
        names = dict.fromkeys(name for options in every for name in options)
        differing = {name for name in names if len({str(options.get(name)) for options in every}) > 1}
        several_encoders = len({row.encoder for row in same}) > 1
        for row in same:
            text = _with_options(row, differing)
            text += f" ({row.encoder})" if several_encoders and row.encoder else ""
            labels[row.selection_id] = text + role_mark(row)
    return unique_labels(labels, variants)


def series_text(row: SelectionRow, *, hidden: Iterable[str] = ()) -> str:
    """Return the sampler's name with its options that are not default, without the `hidden` ones, and its role."""
    return _with_options(row, (), hidden) + role_mark(row)


def _with_options(row: SelectionRow, differing: Iterable[str], hidden: Iterable[str] = ()) -> str:
    """Return the sampler's name with its options that are not default or in `differing`, without the `hidden` ones."""
    options = {**row.options, **row.changed_options}
    # An option that is none is left out beside one that has a value: "even_cover" and "even_cover budget_of=focus".
    stated = [name for name in options if name in row.changed_options or name in set(differing)]
    shown = [name for name in stated if options[name] is not None]
    return " ".join([row.sampler, *(f"{name}={options[name]}" for name in shown if name not in hidden)])


def role_mark(row: SelectionRow) -> str:
    """Return " [control]" and the like behind the name of a control, ceiling or floor, else nothing."""
    return "" if row.role == "sampler" else _ROLE_MARK.format(row.role)


_ROLE_MARK = " [{}]"
CEILING_MARK = _ROLE_MARK.format("ceiling")


def unique_labels(labels: dict[str, str], variants: Mapping[str, SelectionRow]) -> dict[str, str]:
    """Mark selections that a table would take for one: the same label, k and seed, but chosen in another way.

    A folder holds such rows when a matrix was changed and run there again (another `coarse_seed`, a sampler's
    newer version, an edited sampler file). Pooled, they would pass for seeds of one configuration.
    """
    alike = Counter((labels[key], row.k, row.seed) for key, row in variants.items())
    return {
        key: f"{labels[key]} #{key[:4]}" if alike[labels[key], row.k, row.seed] > 1 else labels[key]
        for key, row in variants.items()
    }


def sampler_order(label: str) -> tuple[int, str]:
    """Return a sorting key of sampler labels: the floor and baselines, those of the paper, the rest, the ceiling."""
    sampler = label.split(" ")[0]
    return (_ORDER.index(sampler) if sampler in _ORDER else len(_ORDER) + (sampler in _LAST), label)


class RunRows(Collection[RowT]):
    """The rows of all parts of a run that were asked for, read as they are iterated over.

    Args:
        parts: folders of rows.
        asked: ids of the questions by benchmark; all of a benchmark that is not named.
    """

    def __init__(self, parts: Sequence[Path], kind: type[RowT], asked: Mapping[str, set[str]]) -> None:
        self._parts = [StoredRows(part, kind) for part in parts]
        self._asked = asked

    def __iter__(self) -> Iterator[RowT]:
        return (row for part in self._parts for row in part if self._is_asked(row.key))

    def without(self, *names: str) -> Iterator[RowT]:
        """Yield the rows without these fields (see `StoredRows.without`)."""
        return (row for part in self._parts for row in part.without(*names) if self._is_asked(row.key))

    def __len__(self) -> int:
        return sum(self._is_asked(key) for part in self._parts for key, _ in part.states())

    def __bool__(self) -> bool:
        return any(self._is_asked(key) for part in self._parts for key, _ in part.states())

    def __contains__(self, row: object) -> bool:
        return any(stored == row for stored in self)

    def in_order(self, keys: Sequence[Key]) -> list[Iterator[RowT]]:
        """Return the rows of each part whose keys are among `keys`, in their order."""
        place = {key: number for number, key in enumerate(keys)}
        found = []
        for part in self._parts:
            mine = sorted((key for key, _ in part.states() if key in place), key=lambda key: place[key])
            if mine:
                found.append(part.in_order(mine))
        return found

    def _is_asked(self, key: Key) -> bool:
        """Return False for a row of a question that only another run beside this one has asked."""
        return key[0] not in self._asked or key[1] in self._asked[key[0]]


def rows_in_order(rows: Collection[RowT], keys: Sequence[Key]) -> Iterator[tuple[tuple[str, str], dict[Key, RowT]]]:
    """Yield the rows of `keys` by benchmark and question; several keys of a question stand together."""
    place = {key: number for number, key in enumerate(keys)}
    if isinstance(rows, RunRows):
        parts = rows.in_order(list(place))
    else:
        by_key = {row.key: row for row in rows}
        parts = [iter([by_key[key] for key in place if key in by_key])]
    merged = heapq.merge(*parts, key=lambda row: place[row.key])
    for question, group in groupby(merged, key=lambda row: row.key[:2]):
        yield question, {row.key: row for row in group}


# Options that say the same thing in FOCUS's public code and in ours.
_ALPHA, _CLIP_SECONDS = ("alpha", "zoom_ratio"), ("clip_seconds", "coarse_every_sec")
# Options that a table has a column for do not stand beside the sampler's name too; by the column's key.
_SHOWN_IN: Mapping[str, tuple[str, ...]] = {"": (), "alpha": _ALPHA, "clip_seconds": _CLIP_SECONDS}


def _columns_of(rows: Iterable[RowT], line: Callable[[RowT], dict[str, Any]]) -> dict[str, Any]:
    """Return what `line` says of each row, column by column.

    A run may have a million rows: equal texts are one object, most are the same few, and floats take eight bytes.
    """
    columns: dict[str, Any] = {}
    waiting: dict[str, list[Any]] = {}
    for number, row in enumerate(rows, 1):
        for name, value in line(row).items():
            waiting.setdefault(name, []).append(intern(value) if type(value) is str else value)
        if number % _ROWS_AT_ONCE == 0:
            columns = {name: _extended(columns.get(name), values) for name, values in waiting.items()}
            waiting.clear()
    columns.update({name: _extended(columns.get(name), values) for name, values in waiting.items()})
    return {name: np.asarray(column) if isinstance(column, array) else column for name, column in columns.items()}


def _extended(column: array[float] | list[Any] | None, values: list[Any]) -> array[float] | list[Any]:
    are_floats = all(type(value) is float for value in values)
    if column is None:
        column = array("d") if are_floats else []
    elif isinstance(column, array) and not are_floats:
        column = column.tolist()
    column.extend(values)
    return column


def _selection_line(row: SelectionRow) -> dict[str, Any]:
    evidence = frozen_floats(row.evidence_seconds)
    has_recall = evidence.size > 0 and row.error is None and row.has_times
    none = [None] * len(RECALL_SECONDS)
    at_any_size = recall_within(evidence, row.times_seconds, RECALL_SECONDS) if has_recall else none
    recalls = at_any_size
    if has_recall and row.scales is not None:
        recalls = recall_within(evidence, row.times_seconds, RECALL_SECONDS, scales=row.scales)
    none_asked = float("nan") if row.asked.get("calls") else 0
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "label": "",  # known once all variants are
        "sampler": row.sampler,
        **{f"sampler_text {column}": series_text(row, hidden=hidden) for column, hidden in _SHOWN_IN.items()},
        "encoder": row.encoder,
        "k": row.k,
        "seed": row.seed,
        "alpha": _option(row, _ALPHA),
        "clip_seconds": _option(row, _CLIP_SECONDS),
        "n_keyframes": len(row.keyframes),
        # Pixels fed, in full frames.
        "full_frames": len(row.keyframes) if row.scales is None else sum(scale**2 for scale in row.scales),
        "n_frames": row.n_frames,
        "duration_seconds": row.duration_seconds,
        "n_pulls": row.frames_scored,
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
        **{f"llm_{what}": row.asked.get(what, none_asked) for what in ASKED},
        **{f"decoded_{mode}": _decoded(row, mode) for mode in DECODED},
        "select_device": row.device,
        "select_seconds": sum(row.seconds.get(stage, 0.0) for stage in HELD_STAGES),
        **{f"seconds_{stage}": row.seconds.get(stage, 0.0) for stage in (*HELD_STAGES, *BESIDE_STAGES)},
        **{recall_column(d): value for d, value in zip(RECALL_SECONDS, recalls, strict=True)},
        **{recall_column(d, any_size=True): value for d, value in zip(RECALL_SECONDS, at_any_size, strict=True)},
        "moments": evidence.size,
        "nearness": nearness(evidence, row.times_seconds) if has_recall else None,
        "near_frames": near_frames(evidence, row.times_seconds) if has_recall else None,
        "spread": spread(row.times_seconds, duration_seconds=row.duration_seconds) if has_recall else None,
        "error": row.error,
    }


def _answer_line(row: AnswerRow) -> dict[str, Any]:
    return {
        "benchmark": row.benchmark,
        "question_id": row.question_id,
        "video": row.video,
        "bucket": row.bucket,
        "selection_id": row.selection_id,
        "cell_id": row.cell_id,
        "cell": row.cell,
        "model": row.model,
        "score": float("nan") if row.score is None or row.error is not None else row.score,
        "category": row.category,
        "metric": row.metric,
        "is_answered": row.error is None,
        "is_unparsed": row.is_unparsed,
        "error": row.error,
        "fallback": row.fallback,
        "frames_asked": row.frames_asked,
        "frames_fed": row.frames_fed,
        "is_below_k": row.error is None and row.frames_fed < row.frames_asked,
        "generate_seconds": row.seconds.get("generate", 0.0),
        "answer_device": row.device,
    }


def _decoded(row: SelectionRow, mode: str) -> float:
    """Frames decoded, NaN where the row does not say; a question that failed is not counted."""
    return row.decoded.get(mode, 0) if row.decoded or row.error is not None else float("nan")


def _has_cost(row: SelectionRow) -> bool:
    """Whether the row knows what choosing cost: a file of frames alone, read from elsewhere, does not say."""
    came_as_a_file = row.facts.get("published") or row.facts.get("replayed_from")
    return row.frames_scored > 0 or not came_as_a_file


def _option(row: SelectionRow, names: Iterable[str]) -> Any:
    return next((row.options[name] for name in names if name in row.options), None)


@dataclass(frozen=True)
class Run:
    """All rows of one run's folder.

    Args:
        name: of the matrix, else of the folder.
        selections, answers: rows; those of a folder are read again at every iteration.
        provenance: `run.json`, empty where there is none.
        made_with: versions and exact weights by cell, as far as they were written down.
        prompts: what the model was sent first by cell, likewise.
    """

    name: str
    selections: Collection[SelectionRow]
    answers: Collection[AnswerRow]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def mixed_versions(self) -> tuple[str, ...]:
        """Sentences about rows of several versions or weights in this run; none where all are of one."""
        by_versions: dict[str, set[str]] = {}
        by_model: dict[str, set[str]] = {}
        for model, cell in {(model, cell) for *_, cell, model in self.cells}:
            made = self.made_with.get(cell, {})
            versions = ", ".join(f"{name} {version}" for name, version in sorted(made.get("versions", {}).items()))
            if versions:
                by_versions.setdefault(versions, set()).add(model)
            if made.get("weights"):
                by_model.setdefault(model, set()).add(str(made["weights"]))
        parts = [f"{', '.join(sorted(models))} with {versions}" for versions, models in sorted(by_versions.items())]
        mixed = ["Answers of several versions: " + "; ".join(parts) + "."] if len(parts) > 1 else []
        mixed += [
            f"Answers of several weights of {model}: {', '.join(sorted(weights))}."
            for model, weights in sorted(by_model.items())
            if len(weights) > 1
        ]
        return tuple(mixed)

    @property
    def anchors(self) -> str:
        """Name of the published table that this run stands beside; "" where there is none."""
        return str(self.provenance.get("matrix", {}).get("anchors", ""))

    def facts_of(self, benchmark: str) -> BenchmarkFacts:
        """Return what is true of a benchmark: as its run stated it, else as its own file says."""
        if benchmark not in self._facts:
            self._facts[benchmark] = facts_of(benchmark, self._stated.get(benchmark))
        return self._facts[benchmark]

    @cached_property
    def _facts(self) -> dict[str, BenchmarkFacts]:
        return {}

    @cached_property
    def _stated(self) -> dict[str, Mapping[str, Any]]:
        return {item["benchmark"]: item for item in self.provenance.get("matrix", {}).get("benchmarks", [])}

    @property
    def cut_queries(self) -> dict[str, tuple[int, int]]:
        """Questions of which an encoder read only the start, and all it was asked; by encoder, where any was cut."""
        frame = self.selection_frame
        if frame.empty:
            return {}
        asked = frame[(frame["encoder"] != "") & frame["error"].isna()]
        asked = asked.drop_duplicates(["encoder", "benchmark", "question_id"], keep="last")
        return {
            str(encoder): (int(cut.sum()), len(cut))
            for encoder, cut in asked.groupby("encoder", sort=False)["query_cut"]
            if cut.any()
        }

    @cached_property
    def pays_its_own(self) -> dict[tuple[str, str], bool]:
        """Whether each selection made all the forwards that it needed, so that its hours are its own.

        By benchmark and selection id. Every question needs each of its frames once, as the published hours count:
        where the questions of a video shared theirs, the hours are another figure.
        """
        if self.selection_frame.empty:
            return {}
        sums = self.selection_frame.groupby(["benchmark", "selection_id"])[["forwards", "n_distinct_pulls"]].sum()
        return dict((sums["forwards"] >= sums["n_distinct_pulls"]).items())

    @property
    def variants(self) -> tuple[SelectionRow, ...]:
        """One row of each selection id, without what was scored: who chose, and how."""
        return tuple(self._read_selections[0].values())

    @cached_property
    def labels(self) -> dict[str, str]:
        """The short name of each selection id (see `labels_of`)."""
        return labels_of(self.variants)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(model for *_, model in self.cells))

    @property
    def cells(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Benchmark, selection id, cell id, cell and model of the answers, each once."""
        keys = ("benchmark", "selection_id", "cell_id", "cell", "model")
        return tuple(dict.fromkeys(zip(*(self._answer_columns.get(key, ()) for key in keys), strict=True)))

    @cached_property
    def selection_frame(self) -> pd.DataFrame:
        """One line per selection: who chose, what it cost, and what of the evidence it shows."""
        frame = self._read_selections[1]
        if not frame.empty:
            frame["label"] = frame["selection_id"].map(self.labels)
            frame["charged_seconds"] = charged_seconds(frame)
        return frame

    @cached_property
    def answer_frame(self) -> pd.DataFrame:
        """One line per answer with its selection's columns, joined on benchmark, question and selection."""
        lines: pd.DataFrame = pd.DataFrame(self._answer_columns)
        _refuse_two_cells(self.name, lines)
        if lines.empty:
            return lines
        lines["type"] = self._types(lines)
        if self.selection_frame.empty:
            return lines
        keys = ["benchmark", "question_id", "selection_id"]
        chosen = self.selection_frame.drop(columns=["video", "bucket", "error"])
        joined: pd.DataFrame = lines.merge(chosen, on=keys, how="left", validate="many_to_one")
        missing = joined[joined["label"].isna()]
        if len(missing):
            first = missing.iloc[0]
            raise InvalidInput(
                f"{self.name}: {len(missing)} answers without their selection, the first is {first['question_id']!r}"
            )
        return joined

    def _types(self, lines: pd.DataFrame) -> list[str]:
        """The question type of each line, "" where its benchmark is reported as the mean over questions."""
        pairs = list(zip(lines["benchmark"], lines["category"], strict=True))
        types = {(name, category): self.facts_of(name).strata([category]) or [""] for name, category in set(pairs)}
        return [types[pair][0] for pair in pairs]

    @cached_property
    def _read_selections(self) -> tuple[dict[str, SelectionRow], pd.DataFrame]:
        """The variants and the columns of all selections, in one pass: reading them again takes long."""
        variants: dict[str, SelectionRow] = {}
        costs = CostColumns()
        # Tables count what was pulled and show none of it: these two are most of a row.
        shown = self.selections
        rows = shown.without("pulled_relevance", "clips") if isinstance(shown, RunRows) else shown

        def line(row: SelectionRow) -> dict[str, Any]:
            if row.sampler or row.selection_id not in variants:  # a failed row may not say who was to choose
                variants[row.selection_id] = row.without_pulls()
            costs.add(row, has_cost=_has_cost(row))
            return _selection_line(row)

        columns = _columns_of(rows, line)
        return variants, pd.DataFrame({**columns, **costs.columns()})

    @cached_property
    def _answer_columns(self) -> dict[str, Any]:
        return _columns_of(self.answers, _answer_line)


def load_run(folder: str | Path) -> Run:
    """Return the rows of `selections/` and `answers/` in a run's folder, or in a packed run (`focus-eval pack`).

    They may be JSON lines and Parquet, one part or many.

    Raises:
        InvalidInput: no such folder, no rows, a part that is a link to nowhere, or a damaged file; names it.
    """
    path = run_folder(usable_path(folder, "a run"))
    if not path.is_dir():
        raise InvalidInput(f"{path}: no such folder; a run is a folder with selections/ and answers/")
    check_links(path)
    file = path / "run.json"
    provenance = read_sealed_json(file) if file.exists() else {}
    asked = {name: set(ids) for name, ids in provenance.get("asked", {}).items()}
    selections = RunRows(_parts(path / "selections"), SelectionRow, asked)
    answers = RunRows(_parts(path / "answers"), AnswerRow, asked)
    if not selections and not answers:
        raise InvalidInput(f"{path}: no rows under selections/ or answers/; {_where_rows_may_be(path)}")
    name = str(provenance.get("name") or path.resolve().name)
    return Run(name, selections, answers, provenance, made_with=_made_with(path), prompts=_prompts(path))


def load_runs(folders: Sequence[str | Path]) -> Run:
    """Return the rows of several runs' folders as one run; a row that several hold counts once.

    Raises:
        InvalidInput: as `load_run`.
    """
    runs = [load_run(folder) for folder in folders]
    if len(runs) == 1:
        return runs[0]
    made_with = {cell: made for run in runs for cell, made in run.made_with.items()}
    selections = {row.key: row for run in runs for row in run.selections}
    answers = {row.key: row for run in runs for row in run.answers}
    name = ", ".join(run.name for run in runs)
    return Run(name, list(selections.values()), list(answers.values()), made_with=made_with)


def _where_rows_may_be(folder: Path) -> str:
    """Runs of lmms-eval, and a folder of several runs, have the rows one folder below."""
    below = sorted({found.parent.name for kind in ("answers", "selections") for found in folder.glob(f"*/{kind}")})
    return f"its folders hold runs, name one: {', '.join(below)}" if below else "has the run begun?"


def _refuse_two_cells(name: str, answers: pd.DataFrame) -> None:
    """Refuse answers of one model to one question from one selection from other settings."""
    if answers.empty or answers["cell_id"].nunique() < 2:
        return
    keys = ["benchmark", "question_id", "model", "selection_id"]
    first = answers.groupby(keys, sort=False)["cell_id"].transform("first")
    for row in answers[answers["cell_id"] != first].itertuples():
        raise InvalidInput(
            f"{name}: {row.model} answered {row.question_id!r} in two cells from the same frames "
            f"({row.cell} is one): the matrix was changed between runs; give the newer one its own folder (--out)"
        )


def _made_with(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the identity of each cell by its name: of a run's parts, or of the one cell that `folder` is."""
    found = {}
    for file in [folder / "cell.json", *sorted((folder / "answers").glob("*/cell.json"))]:
        if file.is_file():
            document = read_sealed_json(file)
            found[str(document.get("name") or file.parent.resolve().name)] = document.get("identity", {})
    return found


def _prompts(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return what was sent first by the cell's name, as `_made_with` names the cells."""
    cells = [folder.resolve(), *sorted((folder / "answers").glob("*"))]
    return {cell.name: read_sealed_json(file) for cell in cells if (file := cell / PROMPT_FILE).is_file()}


def _parts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
