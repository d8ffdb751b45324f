"""Measures published selections on annotated evidence, from their files: figures, paired differences, tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import distances_text
from focus_eval.benchmarks.question import BUCKETS, Question
from focus_eval.benchmarks.registry import read_annotations, read_rates, stated_rates
from focus_eval.core.errors import InvalidInput
from focus_eval.registry.cards import Card, PublishedFile, check_file, find_file
from focus_eval.report.nearness import nearness, random_nearness
from focus_eval.report.recall import EvidenceCase, Times, evidence_cases, uniform_times
from focus_eval.report.scenes import SHORT, SHORT_SECONDS, TOLERANCES_SECONDS, interval_figures, random_figures
from focus_eval.report.statistics import compare_paired, holm
from focus_eval.report.table import Table, TableRow, Value, to_markdown
from focus_eval.rows.records import replace_file, write_text
from focus_eval.selections import load_selections

BASELINES = ("random", "uniform")
# Selections of one K are compared with this one, or with uniform where it was not published at that K.
REFERENCE = "AKS"
# The page and the paired differences leave out shorter videos: their evidence is mostly in view.
LONG_SECONDS = 180.0
_SHORT = BUCKETS[0]
# What `interval_figures` calls a tolerance, and how it is called here: a moment is an interval of no length.
_WITHIN = {f"hit@{tolerance:g}": f"within {tolerance:g} s" for tolerance in TOLERANCES_SECONDS}
_INSIDE = _WITHIN["hit@0"]
MEASURES = (*_WITHIN.values(), "nearness")
_MARKS = ("<!-- leaderboard -->", "<!-- end of leaderboard -->")


@dataclass(frozen=True, kw_only=True)
class Row:
    """The figures of one selection on the questions of one bucket, as texts, for they are compared with a file's.

    Args:
        bucket: of the video's length, or of the interval's.
        frames: mean number of different frames.
        figures: by `MEASURES`, in [0, 1]; that inside an interval is "" where evidence is moments.
    """

    benchmark: str
    name: str
    k: str
    bucket: str
    questions: str
    frames: str
    figures: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the row in the CSV file, under `COLUMNS`."""
        return (self.benchmark, self.name, self.k, self.bucket, self.questions, self.frames, *self.figures)


COLUMNS = (*(item.name for item in fields(Row) if item.name != "figures"), *MEASURES)
DIFFERENCE_COLUMNS = ("benchmark", "k", "name", "less", "questions", "measure", "value", "low", "high", "p", "p_holm")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The evidence of one benchmark's questions, which selections are measured on.

    Args:
        cases: questions with evidence.
        intervals: by question id; a moment is an interval of no length.
        are_moments: whether they all are.
        videos: by question id.
    """

    benchmark: str
    cases: tuple[EvidenceCase, ...]
    intervals: Mapping[str, tuple[tuple[float, float], ...]]
    are_moments: bool
    videos: Mapping[str, str]

    @classmethod
    def of(cls, benchmark: str, questions: Sequence[Question], fps: Mapping[str, float]) -> Ground:
        """Return the ground of `questions`; those without evidence that can be read are left out."""
        cases = evidence_cases(benchmark, questions, fps)
        moments = {case.question_id: tuple((time, time) for time in case.evidence_seconds.tolist()) for case in cases}
        intervals = {question.id: question.evidence_intervals or moments[question.id] for question in questions}
        kept = tuple(case for case in cases if intervals[case.question_id])
        are_moments = not any(question.evidence_intervals for question in questions)
        videos = {question.id: question.video for question in questions}
        return cls(benchmark=benchmark, cases=kept, intervals=intervals, are_moments=are_moments, videos=videos)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of its evidence: nothing is inside a moment."""
        return tuple(name for name in MEASURES if not (self.are_moments and name == _INSIDE))

    @property
    def groups(self) -> list[tuple[str, np.ndarray]]:
        """Name and mask over `cases` of each bucket: by the video's length, or by that of the intervals."""
        if self.are_moments:
            buckets = np.array([case.bucket for case in self.cases])
            return [(name, buckets == name) for name in BUCKETS if (buckets == name).any()]
        longest = [max(stop - start for start, stop in self.intervals[case.question_id]) for case in self.cases]
        return [("all", np.ones(len(self.cases), dtype=bool)), (SHORT, np.asarray(longest) <= SHORT_SECONDS)]


@dataclass(frozen=True)
class Material:
    """What the figures of published files are derived from.

    Args:
        files: folder of the published files.
        annotations: annotation file of each benchmark.
        rates: CSV of lengths and rates, for annotations that do not state them.
    """

    files: Path
    annotations: Mapping[str, Path]
    rates: Path | None = None
    _grounds: dict[str, tuple[Sequence[Question], dict[str, float], Ground]] = field(default_factory=dict)

    def find(self, card: Card, item: PublishedFile) -> Path | None:
        """Return a card's file, checked against its hash; None where it is not at hand."""
        path = find_file(item, card.folder, self.files)
        if path is not None:
            check_file(item, path)
        return path

    def questions(self, benchmark: str) -> Sequence[Question]:
        """Return the questions of a benchmark. Raises InvalidInput without its annotation."""
        return self.ground(benchmark)[0]

    def videos(self, benchmark: str) -> dict[str, str]:
        """Return the video of each question of a benchmark. Raises as `questions`."""
        return {question.id: question.video for question in self.questions(benchmark)}

    def ground(self, benchmark: str) -> tuple[Sequence[Question], dict[str, float], Ground]:
        """Return the questions of a benchmark, their rates, and the evidence that selections are measured on.

        Raises:
            InvalidInput: no annotation of it was given, or one without rates and no --rates.
        """
        if benchmark not in self._grounds:
            if benchmark not in self.annotations:
                raise InvalidInput(f"measuring needs the annotation of {benchmark} (--annotations {benchmark}=FILE)")
            questions = read_annotations(benchmark, self.annotations[benchmark])
            rate_of = stated_rates(questions)
            if not rate_of:
                if self.rates is None:
                    raise InvalidInput(f"{self.annotations[benchmark]}: states no frame rates; measuring needs --rates")
                rate_of = read_rates(self.rates)
            fps = {key: float(rate.fps) for key, rate in rate_of.items()}
            self._grounds[benchmark] = (questions, fps, Ground.of(benchmark, questions, fps))
        return self._grounds[benchmark]


@dataclass(frozen=True, kw_only=True)
class Group:
    """The selections of one benchmark and K that are at hand, and the baselines at that K.

    Args:
        figures: `question_figures` by name, those of the baselines included.
        owners: the folder of the registry of each selection.
        notes: frames and rows that were left out.
        is_whole: whether no listed selection is missing, so that tiers among `figures` are those of the registry.
    """

    ground: Ground
    k: int
    figures: Mapping[str, pd.DataFrame]
    owners: Mapping[str, str]
    notes: tuple[str, ...]
    is_whole: bool

    @property
    def tested(self) -> list[str]:
        """The names of real frames: random's figures are an expectation."""
        return sorted(name for name in self.figures if name != "random")


def measured_groups(
    cards: Iterable[Card], material: Material, *, only: str = "", missing: list[str] | None = None
) -> Iterator[Group]:
    """Yield the selections of each benchmark and K, from the files that are at hand.

    Args:
        only: folder of a sampler: groups without it are left out.
        missing: takes a sentence for each file that is not at hand.

    Raises:
        InvalidInput: a file that is another one, or does not fit the benchmark's questions.
    """
    listed = [(card, item) for card in cards for item in card.selections]
    wanted = sorted({(item.benchmark, item.k) for card, item in listed if only in ("", card.name)})
    for card, item in listed:  # an annotation that was not given is said before minutes of work
        if (item.benchmark, item.k) in wanted and material.find(card, item) is not None:
            material.ground(item.benchmark)
    for benchmark, k in wanted:
        figures: dict[str, pd.DataFrame] = {}
        owners, notes, is_whole = {}, list[str](), True
        for card, item in listed:
            if (item.benchmark, item.k) != (benchmark, k):
                continue
            label, path = card.label(item), material.find(card, item)
            if path is None:
                is_whole = False
                if missing is not None:
                    place = f"published at {item.source or 'a place not recorded'}"
                    missing.append(f"{label}, {benchmark}, K = {k}: not at hand, {item.file} ({place})")
                continue
            questions, fps, ground = material.ground(benchmark)
            left_out: list[str] = []
            loaded = load_selections(path, format=item.format, questions=questions, fps=fps, left_out=left_out)
            figures[label] = question_figures(ground, {key: one.times_at(fps[key]) for key, one in loaded.items()})
            owners[label] = card.name
            notes += [f"{label}, K = {k}: {line}" for line in left_out]
        if figures:
            figures |= baseline_figures(ground, k)
            yield Group(ground=ground, k=k, figures=figures, owners=owners, notes=tuple(notes), is_whole=is_whole)


def question_figures(ground: Ground, times: Mapping[str, Times]) -> pd.DataFrame:
    """Return the measures of each question of `ground.cases`, and its number of different frames; in their order.

    Raises:
        InvalidInput: a question without a selection.
    """
    made = []
    for case in ground.cases:
        if case.question_id not in times:
            raise InvalidInput(f"{ground.benchmark}: no selection for question {case.question_id!r}")
        chosen, intervals = times[case.question_id], ground.intervals[case.question_id]
        starts, stops = np.asarray(intervals, dtype=np.float64).T
        figures = _named(interval_figures(intervals, chosen))
        made.append({**figures, "nearness": nearness(starts, chosen, stops=stops), "frames": len(set(chosen))})
    return pd.DataFrame(made)


def random_question_figures(ground: Ground, k: int) -> pd.DataFrame:
    """Return the exact expectation of `question_figures` for `k` frames drawn at random."""
    made = []
    for case in ground.cases:
        intervals = ground.intervals[case.question_id]
        starts, stops = np.asarray(intervals, dtype=np.float64).T
        figures = _named(random_figures(intervals, case, k))
        made.append({**figures, "nearness": random_nearness(starts, stops, case, k), "frames": min(k, case.n_frames)})
    return pd.DataFrame(made)


def _named(figures: Mapping[str, float]) -> dict[str, float]:
    return {_WITHIN[name]: value for name, value in figures.items() if name in _WITHIN}


def rows_of(ground: Ground, name: str, k: int, figures: pd.DataFrame) -> list[Row]:
    """Return the rows of one selection, a row per bucket."""
    made = []
    for bucket, inside in ground.groups:
        means = figures[inside].mean()
        texts = tuple(f"{means[measure]:.4f}" if measure in ground.measures else "" for measure in MEASURES)
        about = {"questions": str(int(inside.sum())), "frames": f"{means['frames']:.1f}"}
        made.append(Row(benchmark=ground.benchmark, name=name, k=str(k), bucket=bucket, figures=texts, **about))
    return made


def baseline_figures(ground: Ground, k: int) -> dict[str, pd.DataFrame]:
    """Return the figures of uniform and of random frames at `k`."""
    uniform = question_figures(ground, uniform_times(ground.cases, k=k))
    return {"uniform": uniform, "random": random_question_figures(ground, k)}


def difference_rows(ground: Ground, k: int, figures: Mapping[str, pd.DataFrame]) -> list[tuple[str, ...]]:
    """Return the paired differences of the selections of one K to the reference, p adjusted over them by Holm.

    Args:
        figures: by name of the selection; `question_figures` of each, random left out.
    """
    reference = REFERENCE if REFERENCE in figures else "uniform"
    kept = np.array([case.duration_seconds >= LONG_SECONDS for case in ground.cases])
    videos = [ground.videos[case.question_id] for case, is_kept in zip(ground.cases, kept, strict=True) if is_kept]
    compared = [
        (name, measure, compare_paired(figures[reference][measure][kept], figures[name][measure][kept], videos))
        for name in sorted(figures)
        if name not in (reference, "random")
        for measure in ground.measures
    ]
    adjusted = holm([made.p_value for _, _, made in compared])
    rows = []
    for (name, measure, made), p_holm in zip(compared, adjusted, strict=True):
        difference = made.difference
        ends = ("" if end is None else f"{end:.4f}" for end in (difference.low, difference.high))
        about = (ground.benchmark, str(k), name, reference, str(difference.questions), measure)
        rows.append((*about, f"{difference.value:.4f}", *ends, f"{made.p_value:.4f}", f"{p_holm:.4f}"))
    return rows


def replaced_differences(rows: Iterable[tuple[str, ...]], new: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return `rows` with `new` in place of those of the same selections and measure."""
    return list({(*row[:4], row[5]): row for row in (*rows, *new)}.values())


def read_rows(path: Path) -> list[Row]:
    """Return the rows of the CSV file; none where there is no file.

    Raises:
        InvalidInput: other columns.
    """
    at = len(COLUMNS) - len(MEASURES)
    return [Row(**dict(zip(COLUMNS[:at], row[:at], strict=True)), figures=row[at:]) for row in read_csv(path, COLUMNS)]


def read_differences(path: Path) -> list[tuple[str, ...]]:
    """Return the differences in a CSV file; none where there is no file. Raises as `read_rows`."""
    return read_csv(path, DIFFERENCE_COLUMNS)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows: by benchmark, fewer frames first, baselines first, then by name. No order says who is best."""
    ordered = sorted(rows, key=lambda row: (row.benchmark, int(row.k), row.name not in BASELINES, row.name))
    write_csv(path, COLUMNS, [row.texts for row in ordered])


def write_differences(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    """Write differences in the order of `write_rows`."""
    write_csv(path, DIFFERENCE_COLUMNS, sorted(rows, key=lambda row: (row[0], int(row[1]), row[2])))


def replaced(rows: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return `rows` with `new` in place of those of the same benchmark, name, K and bucket."""
    return list({row.texts[:4]: row for row in (*rows, *new)}.values())


def leaderboard_tables(rows: Sequence[Row]) -> list[Table]:
    """Return a table per benchmark, with who is first at each tolerance."""
    return [_table([row for row in rows if row.benchmark == name]) for name in dict.fromkeys(r.benchmark for r in rows)]


def _table(rows: Sequence[Row]) -> Table:
    buckets = list(dict.fromkeys(row.bucket for row in rows))
    tolerances = [f"{d:g}" for at, d in enumerate(TOLERANCES_SECONDS) if any(row.figures[at] for row in rows)]
    lines: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault((row.k, row.name), {})[row.bucket] = row
    made = []
    for (k, name), found in lines.items():
        texts: list[str] = []
        for bucket in buckets:
            shown = found.get(bucket)
            texts += [_hits(shown), shown.figures[-1].lstrip("0")] if shown else ["", ""]
        made.append(TableRow((k, name), (_mean_frames(list(found.values())), *texts)))
    within = f"within {' / '.join(tolerances)} s"
    return Table(
        name=f"leaderboard_{rows[0].benchmark}",
        title=f"Evidence in view of published selections, {rows[0].benchmark}",
        key_titles=("K", "Selection"),
        columns=("Frames", *(text for bucket in buckets for text in (f"{bucket}: {within}", f"{bucket}: nearness"))),
        rows=tuple(made),
        notes=tuple(_leaders(rows, buckets)),
    )


def _mean_frames(rows: Sequence[Row]) -> str:
    """Frames over all questions; buckets of lengths share them, "all" holds them."""
    whole = [row for row in rows if row.bucket == "all"] or rows
    questions = [int(row.questions) for row in whole]
    frames = sum(float(row.frames) * count for row, count in zip(whole, questions, strict=True))
    return f"{frames / sum(questions):.1f}"


def _hits(row: Row) -> str:
    return " / ".join(text.lstrip("0") or "0" for text in row.figures[:-1] if text)


def _leaders(rows: Sequence[Row], buckets: Sequence[str]) -> Iterable[str]:
    """Say who is first at each K and bucket, if one selection is at every tolerance and in nearness."""
    for k in dict.fromkeys(row.k for row in rows):
        for bucket in buckets:
            part = [row for row in rows if row.k == k and row.bucket == bucket and row.name not in BASELINES]
            if len(part) < 2:
                continue
            first: dict[str, list[str]] = {}
            for at, measure in enumerate(MEASURES):
                if part[0].figures[at]:
                    best = max(float(row.figures[at]) for row in part)
                    leader = ", ".join(row.name for row in part if float(row.figures[at]) == best)
                    first.setdefault(leader, []).append(measure)
            if len(first) == 1:
                yield f"K = {k}, {bucket}: {next(iter(first))} is first at every tolerance and in nearness."
            else:
                said = "; ".join(f"{name} ({', '.join(measures)})" for name, measures in first.items())
                yield f"K = {k}, {bucket}: first by tolerance: {said}."


def difference_tables(rows: Sequence[tuple[str, ...]]) -> list[Table]:
    """Return a table of the paired differences per benchmark."""
    return [
        _difference_table([row for row in rows if row[0] == name]) for name in dict.fromkeys(row[0] for row in rows)
    ]


def _difference_table(rows: Sequence[tuple[str, ...]]) -> Table:
    measures = list(dict.fromkeys(row[5] for row in rows))
    lines: dict[tuple[str, str], dict[str, Value]] = {}
    for _, k, name, less, _, measure, value, low, high, _, p_holm in rows:
        ends = [100 * float(end) if end else None for end in (low, high)]
        made = Value(ours=100 * float(value), low=ends[0], high=ends[1], is_difference=True, p_adjusted=float(p_holm))
        lines.setdefault((k, f"{name} less {less}"), {})[measure] = made
    return Table(
        name=f"leaderboard_differences_{rows[0][0]}",
        title=f"Paired differences (points), {rows[0][0]}, videos of {LONG_SECONDS:g} s and more",
        key_titles=("K", "Selections"),
        columns=tuple(measures),
        rows=tuple(TableRow(key, tuple(found.get(name, Value()) for name in measures)) for key, found in lines.items()),
    )


def source_table(files: Sequence[tuple[str, PublishedFile]]) -> Table:
    """Return the table of where each file comes from; files by their rows' name."""
    rows: list[TableRow] = []
    for name, item in sorted(files, key=lambda found: (found[1].benchmark, found[1].k, found[0])):
        place = " ".join(part for part in (item.source, item.path) if part) or "not recorded"
        texts = (place, item.commit or "not recorded", item.sha256[:16] or "file not at hand", item.file, item.format)
        rows.append(TableRow((str(item.k), name), texts))
    return Table(
        name="leaderboard_sources",
        title="Where the files come from",
        key_titles=("K", "Selection"),
        columns=("Source", "Commit", "sha256, first 16", "File", "Format"),
        rows=tuple(rows),
        notes=(
            "A row's figures: focus-eval recall --benchmark BENCHMARK --annotations ANNOTATION --rates RATES "
            "--selections FILE --format FORMAT.",
        ),
    )


def page_text(
    rows: Sequence[Row], differences: Sequence[tuple[str, ...]], files: Sequence[tuple[str, PublishedFile]]
) -> str:
    """Return the tables of the page that `update_page` keeps, as Markdown.

    Short videos, random frames and variants among `files` are left out; the CSV files have them.
    """
    variants = {(item.benchmark, str(item.k), name) for name, item in files if item.variant}
    shown = [
        row
        for row in rows
        if row.bucket != _SHORT and row.name != "random" and (row.benchmark, row.k, row.name) not in variants
    ]
    tables = [*leaderboard_tables(shown), *difference_tables([row for row in differences if row[:3] not in variants])]
    return "\n".join(to_markdown(table) for table in tables).replace("### ", "## ")


def update_page(page: Path, text: str) -> None:
    """Replace the text between the leaderboard's marks in `page`.

    Raises:
        InvalidInput: a page without the two marks.
    """
    old = page.read_text(encoding="utf-8")
    before, start, rest = old.partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not start or not end:
        raise InvalidInput(f"{page}: lacks the lines {_MARKS[0]} and {_MARKS[1]} to put the table between")
    write_text(page, f"{before}{start}\n{text.strip()}\n{end}{after}")


def read_csv(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the lines of a file that `write_csv` wrote; none where there is no file.

    Raises:
        InvalidInput: other columns.
    """
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    if tuple(head) != tuple(columns) or any(len(row) != len(columns) for row in rows):
        raise InvalidInput(
            f"{path}: not a registry's figures within {distances_text()} s; its columns are {', '.join(head)}"
        )
    return [tuple(row) for row in rows]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write lines of texts under their columns, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part, open(part, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
