"""The layouts and columns of the results table: the paper's, or an overview.

print(to_markdown(results_table(load_run("results/runs/demo"))))
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from focus_eval.bench.benchmarks.question import BUCKETS, NEAR_SECONDS, RECALL_SECONDS
from focus_eval.bench.report import measures
from focus_eval.bench.report.recall import PIXELS_NOTE, recall_column
from focus_eval.bench.report.rendering import TOO_FEW_NOTE, Counts, Table, TableRow, Value
from focus_eval.bench.report.run import Run, groups_in_order, sampler_order
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.rows.identity import is_unnamed_video
from focus_eval.keyframes.rows.records import SelectionRow

# Our samplers whose published line has another name. Most of the paper's numbers come from its public code, which is
# our `focus_released`. The paper's "uniform" on LongVideoBench with LLaVA-Video is our `uniform_1fps`.
PUBLISHED_AS = {"focus_released": "focus", "uniform_1fps": "uniform", "aks_dense": "aks_no_prefilter"}


@cache
def read_anchors(name: str) -> tuple[Mapping[str, str], ...]:
    """Return the lines of the published table `name` ("by_length", "alpha", ...), as texts by column.

    Raises:
        InvalidInput: no such table.
    """
    path = resource_path("paper") / f"{name}.csv"
    if not path.is_file():
        table_names = ", ".join(sorted(item.stem for item in resource_path("paper").glob("*.csv")))
        raise InvalidInput(f"no published table {name!r}; there are: {table_names}")
    with open(path, newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def published_value(line: Mapping[str, str] | None, column: str) -> float | None:
    """Return the figure in `column` of a published line; None if the line is None or has no such figure."""
    text = line.get(column, "") if line else ""
    return float(text) if text else None


def published_sampler(sampler: str) -> str:
    """Return the name under which `sampler` was published."""
    return PUBLISHED_AS.get(sampler, sampler)


# Model of the published tables that do not name their model.
_ONE_MODEL = "llava_video_7b"
_OF_ONE_MODEL = ("by_length", "alpha", "clip_length", "encoder")
_K_OF_OTHERS = 64
_ENCODER = "blip"
_OTHER_ENCODERS = {"qframe": "longclip"}
_AT_ANY_SIZE = recall_column(NEAR_SECONDS, any_size=True)
# Sampler -> options of the paper that differ from our defaults.
_PUBLISHED_OPTIONS: Mapping[str, Mapping[str, object]] = {"qframe": {"fixed_frames": True}}
# Published table -> options in which its lines differ.
_OPTIONS_OF_LINES = {"alpha": ("alpha", "zoom_ratio"), "clip_length": ("clip_seconds", "coarse_every_sec")}


def has_published_settings(
    table: str, line: Mapping[str, str], part: pd.DataFrame, variants: Iterable[SelectionRow]
) -> bool:
    """Return True if all rows have the model, K, encoder and options of a published line.

    Args:
        table: name of the published table.
        line: line of that table.
        part: rows behind one figure, with `k`, `encoder`, `selection_id` and, if models answered, `model`.
        variants: one selection row for every selection id.
    """
    if table in _OF_ONE_MODEL and "model" in part and set(part["model"]) != {_ONE_MODEL}:
        return False
    k = int(line.get("frames") or 0)
    if not k:
        k_by_model = {entry["model"]: int(entry["frames"]) for entry in read_anchors("main_results")}
        k = k_by_model.get(line.get("model", ""), _K_OF_OTHERS)
    if set(part["k"]) != {k}:
        return False
    selection_ids = set(part["selection_id"])
    return all(_is_as_published(table, row) for row in variants if row.selection_id in selection_ids)


def _is_as_published(table: str, row: SelectionRow) -> bool:
    """True if the row's options and encoder are those of the published table."""
    line_options = _OPTIONS_OF_LINES.get(table, ())
    changed = {name: value for name, value in row.changed_options.items() if name not in line_options}
    if changed != _PUBLISHED_OPTIONS.get(row.sampler, {}):
        return False
    return table == "encoder" or row.encoder in ("", _OTHER_ENCODERS.get(row.sampler, _ENCODER))


LOOKS_NOTE = "Each look at a growing run is one more chance of a false arrow."
INTERVAL_NOTE = "Brackets: 95 % interval, t on the logit scale, {}."
NOT_SCORED_NOTE = "Not scored here: the task is not one of focus-eval's benchmarks; lmms-eval's results have it."
COUNTS_NOTE = "Questions are counted once; errors, unparsed, fallbacks and below K once per question and seed."
ERRORS_NOTE = "A question that failed under a seed has no answer for that seed and is left out of its accuracy."
FALLBACKS_NOTE = (
    "Fallbacks: the model was fed other frames than the chosen ones (frame_policy: aks), or a black one where none was "
    "chosen."
)
SEEDS_NOTE = "±: standard deviation over seeds; the interval is that of the mean over seeds."
ASKED_OTHERWISE = (
    "The published runs differ in more than these figures: docs/reproduce.md, 'Settings that differ from the paper'."
)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """The value of a column, and its notes.

    Args:
        figure: function that returns the value of a cell from the run, the cell's answers, their selections and the
            published figure (None if there is none).
        notes: notes below a table with such a column.
        subject: of figure and notes: "answers", "recall" or "cost".
    """

    figure: Callable[[Run, pd.DataFrame, pd.DataFrame, float | None], Value]
    notes: Callable[[Run], Sequence[str]] = lambda run: ()
    subject: str = "answers"

    def value(self, run: Run, answers: pd.DataFrame, selections: pd.DataFrame, published: float | None) -> Value:
        """Return the value of one cell; it holds only the published figure if the cell has no answers or selections."""
        is_empty = "is_answered" not in answers if self.subject == "answers" else selections.empty
        return Value(published=published) if is_empty else self.figure(run, answers, selections, published)


def _hours(run: Run, answers: pd.DataFrame, selections: pd.DataFrame, published: float | None) -> Value:
    hours = measures.hours_per_seed(selections)
    if hours is None:
        return Value(published=None)
    paid = (run.pays_its_own[key] for key in zip(selections["benchmark"], selections["selection_id"], strict=True))
    comparable = measures.runs_on_gpu(selections) and all(paid)
    digits = 1 if hours >= 10 else 2 if hours >= 0.1 else 4
    return Value(ours=hours, published=published if comparable else None, digits=digits)


def _hours_notes(run: Run) -> list[str]:
    """Notes on lines that share frames with further lines, and on hours that were not measured on a GPU."""
    frame = run.selection_frame
    notes = []
    if not all(run.pays_its_own.values()):
        notes.append(
            "Hours: of each line alone. Opening and choosing as measured; each of its frames at the mean seconds of a "
            "forward of its encoder, and of the wait for decoding, on that device in this run."
        )
        unmeasured = sorted(set(frame.loc[frame["charged_seconds"].isna() & frame["has_cost"], "encoder"]))
        if unmeasured:
            encoders = ", ".join(unmeasured)
            notes.append(f"No hours: every frame of {encoders} came from the store, no forward was measured.")
    if not frame.empty and not measures.runs_on_gpu(frame):
        notes.append("Hours on a CPU are not compared with the published GPU hours.")
    return notes


def _task_mean_notes(run: Run) -> list[str]:
    note = "Mean of task types: as MLVU and VSI-Bench are reported, over the types that were asked."
    return [note] if run.answers and bool((run.answer_frame["type"] != "").any()) else []


def _recall_metric(column: str) -> Metric:
    return Metric(figure=lambda run, answers, chosen, _: measures.recall_figure(chosen, column), subject="recall")


ACCURACY = Metric(figure=lambda run, answers, chosen, published: measures.accuracy_figure(answers, published=published))
TASK_MEAN = Metric(
    figure=lambda run, answers, chosen, published: measures.accuracy_figure(
        answers, published=published, over_types=True
    ),
    notes=_task_mean_notes,
)
FRAMES_SCORED = Metric(
    figure=lambda run, answers, chosen, published: Value(
        ours=measures.frames_scored_percent(chosen), published=published, digits=2
    ),
    subject="cost",
)
FORWARDS = Metric(
    figure=lambda run, answers, chosen, _: Value(ours=measures.forwards_percent(chosen), digits=2),
    notes=lambda run: [] if run.selection_frame.empty else measures.forwards_notes(run.selection_frame),
    subject="cost",
)
HOURS = Metric(figure=_hours, notes=_hours_notes, subject="cost")
RECALL_AT_ANY_SIZE = Metric(
    # The figure is empty if all frames have full size, and empty columns are not shown.
    figure=lambda run, answers, chosen, _: (
        measures.recall_figure(chosen, _AT_ANY_SIZE) if measures.has_sizes(chosen) else Value()
    ),
    notes=lambda run: (
        [f"{PIXELS_NOTE} Any size: a frame fed at a small scale counts as a whole one."]
        if measures.has_sizes(run.selection_frame)
        else []
    ),
    subject="recall",
)


@dataclass(frozen=True)
class Column:
    """One column: a metric over the rows that meet the conditions.

    Args:
        conditions: column of the rows -> required value.
        published: column of the published table; "" for none.
    """

    title: str
    metric: Metric = ACCURACY
    conditions: Mapping[str, str] = field(default_factory=dict)
    published: str = ""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The layout of one table.

    Args:
        keys: columns of the answer frame that identify a line.
        published_by: columns that identify a line of the published table; empty if there is no such table.
        benchmark: the benchmark of all lines; "" if there are several.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    published_by: tuple[str, ...] = ()
    benchmark: str = ""

    @property
    def published(self) -> tuple[Mapping[str, str], ...]:
        """Lines of the published table; empty if there is no such table."""
        return read_anchors(self.name) if self.published_by else ()

    def anchor_of(self, values: Mapping[str, object]) -> dict[str, str]:
        """Return the fields that find the published line of one of our rows; empty if there is no published table."""
        sampler = published_sampler(str(values.get("sampler", "")))
        if sampler == "uniform" and self._is_of_option:
            return dict.fromkeys(self.published_by, "uniform")
        names = {**values, "sampler": sampler, "method": sampler}
        return {column: _key_text(names.get(column)) for column in self.published_by}

    def published_keys(self, line: Mapping[str, str]) -> dict[str, str]:
        """Return the texts of `keys` of a published line."""
        texts = {"sampler": line.get("method", "focus"), **{key: line[key] for key in self.keys if key in line}}
        if self._is_of_option and texts[self.published_by[0]] == "uniform":
            texts |= {"sampler": "uniform", self.published_by[0]: ""}
        return texts

    @property
    def _is_of_option(self) -> bool:
        """True if the published table has a line for each value of an option, and one for uniform frames."""
        return bool({*self.published_by} & {"alpha", "clip_seconds", "encoder"})


KEY_TITLES = {
    "benchmark": "Benchmark",
    "model": "Model",
    "sampler": "Sampler",
    "label": "Sampler",
    "encoder": "Encoder",
    "alpha": "alpha",
    "clip_seconds": "Clip (s)",
    "k": "K",
}
_LENGTHS = tuple(Column(name.capitalize(), conditions={"bucket": name}, published=name) for name in BUCKETS)
_OVERALL = Column("Overall", published="overall")


def _by_sampler_layout(name: str, title: str, samplers: tuple[str, ...]) -> Layout:
    """A LongVideoBench layout: a line per model, a column per sampler."""
    return Layout(
        name=name,
        title=title,
        keys=("model",),
        columns=tuple(Column(sampler, conditions={"sampler": sampler}, published=sampler) for sampler in samplers),
        published_by=("model",),
        benchmark="longvideobench",
    )


LAYOUTS = {
    item.name: item
    for item in (
        Layout(
            name="main_results",
            title="Accuracy of models with uniform frames and with FOCUS",
            keys=("model", "sampler"),
            columns=(
                Column("LongVideoBench", conditions={"benchmark": "longvideobench"}, published="longvideobench"),
                Column("Video-MME", conditions={"benchmark": "videomme"}, published="videomme"),
            ),
            published_by=("model", "sampler"),
        ),
        Layout(
            name="by_length",
            title="Accuracy by length of the video",
            keys=("benchmark", "sampler"),
            columns=(*_LENGTHS, _OVERALL),
            published_by=("benchmark", "sampler"),
        ),
        Layout(
            name="efficiency",
            title="Cost of choosing",
            keys=("sampler",),
            columns=(
                Column("Frames scored (%)", FRAMES_SCORED, published="frames_seen_percent"),
                Column("Forward equivalents (%)", FORWARDS),
                Column("Hours", HOURS, published="gpu_hours"),
            ),
            published_by=("method",),
            benchmark="longvideobench",
        ),
        Layout(
            name="alpha",
            title="Share of clips in the second stage (alpha)",
            keys=("sampler", "alpha"),
            columns=(
                Column("Accuracy", published="accuracy"),
                Column("Frames scored (%)", FRAMES_SCORED, published="frames_seen_percent"),
                Column("Hours", HOURS, published="gpu_hours"),
            ),
            published_by=("alpha",),
            benchmark="longvideobench",
        ),
        Layout(
            name="more_benchmarks",
            title="Accuracy on MLVU and VSI-Bench",
            keys=("model", "sampler"),
            columns=(
                Column("MLVU", TASK_MEAN, conditions={"benchmark": "mlvu"}, published="mlvu"),
                Column("MLVU, over questions", conditions={"benchmark": "mlvu"}),
                Column("VSI-Bench", TASK_MEAN, conditions={"benchmark": "vsibench"}, published="vsibench"),
                Column("VSI-Bench, over questions", conditions={"benchmark": "vsibench"}),
            ),
            published_by=("model", "sampler"),
        ),
        _by_sampler_layout("two_stage", "Coarse only, fine only, both", ("uniform", "focus_c", "focus_f", "focus")),
        _by_sampler_layout("bernstein", "With and without the confidence radius", ("uniform", "focus_m", "focus")),
        Layout(
            name="clip_length",
            title="Seconds per clip",
            keys=("sampler", "clip_seconds"),
            columns=(Column("Accuracy", published="accuracy"), Column("Hours", HOURS, published="gpu_hours")),
            published_by=("clip_seconds",),
            benchmark="longvideobench",
        ),
        Layout(
            name="encoder",
            title="Encoder that gives relevance",
            keys=("sampler", "encoder"),
            columns=(Column("Accuracy", published="accuracy"),),
            published_by=("encoder",),
            benchmark="longvideobench",
        ),
        Layout(
            name="overview",
            title="Accuracy by length, evidence recall and cost",
            keys=("benchmark", "model", "label"),
            columns=(
                *(Column(item.title, conditions=item.conditions) for item in _LENGTHS),
                Column("Overall"),
                Column("Mean of task types", TASK_MEAN),
                *(
                    Column(f"Recall@{seconds:g} s (%)", _recall_metric(recall_column(seconds)))
                    for seconds in RECALL_SECONDS
                ),
                Column(f"Recall@{NEAR_SECONDS:g} s, any size (%)", RECALL_AT_ANY_SIZE),
                Column("Frames scored (%)", FRAMES_SCORED),
                Column("Forward equivalents (%)", FORWARDS),
                Column("Hours", HOURS),
            ),
        ),
    )
}


def layout_named(name: str) -> Layout:
    """Return the layout `name`.

    Raises:
        UnknownName: no such layout.
    """
    if name not in LAYOUTS:
        raise unknown_name("table", name, LAYOUTS)
    return LAYOUTS[name]


# A field of these becomes a key of a table's lines if lines with equal keys differ in it.
_HIDDEN_KEYS = ("model", "k", "label", "encoder")
_NO_ENCODER = "none"


def results_table(run: Run, layout: str | None = None) -> Table:
    """Return the table of `run`: the paper's layout that its matrix names, or the overview.

    Every figure has its 95 % interval, the published figure and the difference. A published line is shown even if the
    run has no rows for it, so that the table has the paper's shape.

    Raises:
        UnknownName: no such layout.
        InvalidInput: rows that do not belong together.
    """
    shape = layout_named(layout or run.anchors or "overview")
    lines: pd.DataFrame = (run.answer_frame if run.answers else run.selection_frame).copy(deep=False)
    if "encoder" in lines:
        lines["encoder"] = lines["encoder"].replace("", _NO_ENCODER)
    if shape.benchmark and not lines.empty:
        lines = lines[lines["benchmark"] == shape.benchmark]
        lines = lines[_in_any_column(shape, lines)]
    if not {*shape.keys} & {*lines}:
        # Before any model has answered, a layout with a line per model shows all selections in one line.
        lines = lines.assign(**dict.fromkeys(shape.keys, ""))
    keys = _keys(shape, lines)
    placed: list[tuple[float, TableRow]] = []
    if not lines.empty:
        for values, part in groups_in_order(lines, keys, partial(_line_order, keys=keys)):
            placed.append(_row(run, shape, dict(zip(keys, values, strict=True)), part))
    placed += _published_only(shape, keys, {place for place, _ in placed})
    ordered = [row for _, row in sorted(placed, key=lambda entry: entry[0])]
    selections = run.selection_frame
    hours = "GPU hours" if selections.empty or measures.runs_on_gpu(selections) else "Device-hours (cpu)"
    columns = [(i, hours if title == "Hours" else title) for i, title in _kept_columns(shape, ordered)]
    rows = [TableRow(row.keys, tuple(row.figures[i] for i, _ in columns), row.counts) for row in ordered]
    return Table(
        name=shape.name,
        title=shape.title,
        key_titles=tuple(KEY_TITLES[key] for key in keys),
        columns=tuple(title for _, title in columns),
        rows=tuple(rows),
        notes=_notes(run, shape, rows),
    )


def _in_any_column(shape: Layout, lines: pd.DataFrame) -> NDArray[np.bool_]:
    """A mask of the lines that meet the conditions of some column of the layout."""
    inside = np.zeros(len(lines), dtype=bool)
    for column in shape.columns:
        matches = np.ones(len(lines), dtype=bool)
        for name, value in column.conditions.items():
            matches &= (lines[name] == value).to_numpy(dtype=bool)
        inside |= matches
    return inside


def _line_order(first: pd.Series, keys: Sequence[str]) -> tuple[object, ...]:
    """The sort key of a table line from its first answer: benchmark and model if they are keys, sampler, then K."""
    groups = (str(first[key]) for key in ("benchmark", "model") if key in keys)
    return (*groups, *sampler_order(str(first["label"])), int(first["k"]))


def _keys(shape: Layout, lines: pd.DataFrame) -> tuple[str, ...]:
    """The key columns: those of the layout, and those of `_HIDDEN_KEYS` that differ between lines of equal keys."""
    keys = tuple(key for key in shape.keys if lines.empty or key in lines)
    condition_columns = {name for column in shape.columns for name in column.conditions}
    fixed = [*keys, *(name for name in (*condition_columns, "sampler") if name not in keys and name in lines)]
    for hidden in _HIDDEN_KEYS:
        if lines.empty or hidden in keys or hidden not in lines:
            continue
        unique_labels = [name for name in fixed if name in lines]
        if lines.groupby(unique_labels, dropna=False)[hidden].nunique(dropna=False).max() > 1:
            keys, fixed = (*keys, hidden), [*fixed, hidden]
    if "label" in keys and "sampler" in keys:
        keys = tuple("label" if key == "sampler" else key for key in keys if key != "label")
    return keys


def _row(run: Run, shape: Layout, values: dict[str, object], part: pd.DataFrame) -> tuple[float, TableRow]:
    """Return a measured line and its position among the published lines, or after the last if no line matches.

    A line whose settings differ from the published ones gets no published figure. Its position is just before the
    matching published line.
    """
    key_values = {**{name: part[name].iloc[0] for name in ("sampler", "benchmark") if name in part}, **values}
    anchor, published = shape.anchor_of(key_values).items(), shape.published
    place = next((i for i, line in enumerate(published) if anchor <= line.items()), len(published))
    line = published[place] if place < len(published) else None
    figures, is_beside = [], False
    all_conditions = {tuple(column.conditions.items()): column.conditions for column in shape.columns}
    parts = {key: _rows_meeting(part, condition) for key, condition in all_conditions.items()}
    selections = {key: measures.selections_of(run, rows) for key, rows in parts.items()}
    for column in shape.columns:
        key = tuple(column.conditions.items())
        value = published_value(line, column.published) if column.published else None
        rows = part if parts[key].empty else parts[key]
        if line and value is not None and not has_published_settings(shape.name, line, rows, run.variants):
            value = None
        is_beside = is_beside or value is not None
        figures.append(column.metric.value(run, parts[key], selections[key], value))
    texts = values
    if "sampler" in values:
        # Leave the option with its own column out of the sampler's text.
        own_column = next((key for key in values if key in ("alpha", "clip_seconds")), "")
        texts = {**values, "sampler": " / ".join(sorted(set(part[f"sampler_text {own_column}"])))}
    row = TableRow(tuple(map(_key_text, texts.values())), tuple(figures), measures.counts_of(run, part))
    return place if is_beside or line is None else place - 0.5, row


def _rows_meeting(part: pd.DataFrame, conditions: Mapping[str, str]) -> pd.DataFrame:
    """The lines in which each named column has the given value."""
    for name, value in conditions.items():
        part = part[part[name] == value]
    return part


def _kept_columns(shape: Layout, rows: Sequence[TableRow]) -> list[tuple[int, str]]:
    """Index and title of the columns to show: all for a layout of the paper, else those with a figure."""
    if shape.published_by:
        return [(i, column.title) for i, column in enumerate(shape.columns)]
    has_ours = [
        any(isinstance(figure := row.figures[i], Value) and (figure.ours is not None or figure.text) for row in rows)
        for i in range(len(shape.columns))
    ]
    return [(i, column.title) for i, column in enumerate(shape.columns) if has_ours[i]]


def _published_only(shape: Layout, keys: Sequence[str], taken_places: set[float]) -> list[tuple[float, TableRow]]:
    """(position, line) of each published line whose position is not in `taken_places`."""
    rows: list[tuple[float, TableRow]] = []
    for place, line in enumerate(shape.published):
        if place in taken_places:
            continue
        texts = shape.published_keys(line)
        texts["label"] = texts["sampler"] if "sampler" in shape.keys else ""
        figures = tuple(Value(published=published_value(line, column.published)) for column in shape.columns)
        rows.append((place, TableRow(tuple(texts.get(key, "") for key in keys), figures)))
    return rows


def _notes(run: Run, shape: Layout, rows: Sequence[TableRow]) -> tuple[str, ...]:
    """The notes below the results in their order, each once."""
    frame = run.selection_frame
    has_videos = frame.empty or not frame["video"].map(is_unnamed_video).all()
    units = "clustered by video" if has_videos else "by question"
    notes_by_subject: dict[str, list[str]] = defaultdict(list)
    for column in shape.columns:
        notes_by_subject[column.metric.subject] += column.metric.notes(run)
    figures = [figure for row in rows for figure in row.figures if isinstance(figure, Value)]
    counts = [row.counts for row in rows if row.counts is not None]
    cut_texts = [f"{encoder} cut {n_cut} of {n}" for encoder, (n_cut, n) in run.cut_queries.items()]
    notes = [
        *_partial_notes(counts),
        *(INTERVAL_NOTE.format(units) for figure in figures if figure.low is not None),
        *measures.unnamed_video_notes(frame),
        *(TOO_FEW_NOTE for figure in figures if figure.has_too_few_videos),
        *_published_notes(shape),
        *_pivoted_options(run, shape),
        *notes_by_subject["answers"],
        *(NOT_SCORED_NOTE for figure in figures if figure.text == measures.NOT_SCORED),
        *_answer_notes(run),
        *(COUNTS_NOTE for _ in counts),
        *(ERRORS_NOTE for count in counts if count.errors),
        *([_unparsed_note(run)] if any(count.unparsed for count in counts) else []),
        *(FALLBACKS_NOTE for count in counts if count.fallbacks),
        *measures.subtitle_notes(run),
        *measures.prompt_notes(run.answer_frame),
        *notes_by_subject["recall"],
        *run.mixed_versions,
        *([f"The encoder reads only the start of long questions: {', '.join(cut_texts)}."] if cut_texts else []),
        *measures.scan_notes(run.selection_frame),
        *measures.llm_notes(run.selection_frame),
        *(SEEDS_NOTE for figure in figures if figure.seeds > 1),
        *notes_by_subject["cost"],
    ]
    return tuple(dict.fromkeys(notes))


def _partial_notes(counts: Sequence[Counts]) -> list[str]:
    """Notes on the number of questions asked so far, by benchmark; [] if all were asked."""
    texts_by_benchmark: dict[str, dict[str, None]] = {}
    for count in counts:
        if count.is_partial:
            texts_by_benchmark.setdefault(count.benchmarks, {})[count.questions_text] = None
    parts = (f"{' and '.join(texts)} questions of {names}" for names, texts in texts_by_benchmark.items())
    return [f"Partial run: {'; '.join(parts)}.", LOOKS_NOTE] if texts_by_benchmark else []


def _published_notes(shape: Layout) -> list[str]:
    if not shape.published_by:
        return []
    lines = shape.published
    numbers = sorted({line["table"] for line in lines}, key=lambda entry: (entry == "appendix", entry))
    table_texts = [number if number == "appendix" else f"table {number}" for number in numbers]
    return [
        f"Published: {lines[0]['source']}, {' and '.join(table_texts)}. No test says whether ours differs: the answers "
        "behind a published figure are not published with it.",
        "A published figure is printed only beside lines with its model, K, encoder and options.",
        ASKED_OTHERWISE,
    ]


def _answer_notes(run: Run) -> list[str]:
    """Notes on benchmarks and models without an answer, unscored questions and metrics of tasks."""
    if not run.answers:
        return []
    answers = run.answer_frame
    # Note what is missing from an unfinished run, whose table would otherwise look complete.
    models = [model["name"] for model in run.provenance.get("matrix", {}).get("models", [])]
    metrics = sorted(set(zip(answers["benchmark"], answers["metric"], strict=True)))
    unscored = answers[answers["is_answered"] & answers["score"].isna()]
    n_unscored = len(unscored[["benchmark", "question_id"]].drop_duplicates())
    return [
        *([f"Questions answered but without a score, so not in the accuracy: {n_unscored}."] if n_unscored else []),
        *(
            f"Without an answer, so not in this table: {column} {name}."
            for column, names in (("benchmark", run.selection_frame["benchmark"]), ("model", models))
            for name in dict.fromkeys(names)
            if name not in {*answers[column]}
        ),
        *(f"{benchmark}: scored by its task's own metric, {metric}." for benchmark, metric in metrics if metric),
    ]


def _unparsed_note(run: Run) -> str:
    """A note on the scores of unparsed answers, since lmms-eval may guess an option and score the guess."""
    frame = run.answer_frame
    n_scored, n_cut = int((frame["is_unparsed"] & (frame["score"] > 0)).sum()), int(frame["is_cut"].sum())
    guessed = f", but {n_scored} of this run got points from a rule of lmms-eval's, which may guess" if n_scored else ""
    cut = f" {n_cut} ended while the model was still thinking: max_new_tokens is too low." if n_cut else ""
    return f"An answer that could not be parsed is wrong{guessed}.{cut}"


def _pivoted_options(run: Run, shape: Layout) -> list[str]:
    """Notes on the options of samplers that head a column with their name alone, if options are not default."""
    column_samplers = {column.conditions["sampler"] for column in shape.columns if "sampler" in column.conditions}
    frame = run.selection_frame
    if frame.empty or not column_samplers:
        return []
    other_options = frame[frame["sampler"].isin(column_samplers) & (frame["label"] != frame["sampler"])]
    pairs = sorted(set(zip(other_options["sampler"], other_options["label"], strict=True)))
    return [f"{sampler} here: {label}." for sampler, label in pairs]


def _key_text(value: object) -> str:
    """A key as text; "" for None and NaN."""
    if value is None or value != value:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
