"""The registry's pages: published selections in `docs/leaderboard.md`, and leaderboards with tiers as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.benchmarks.question import BUCKETS
from focus_eval.core.errors import InvalidInput
from focus_eval.registry.cards import COMPUTED, Card, PublishedFile
from focus_eval.registry.cite import read_references, reference_text
from focus_eval.registry.figures import COST, NEAR_MEASURE, WORLD, Figure, Record, RecordFile
from focus_eval.registry.replayed import BASELINES, LONG_SECONDS, MEASURES
from focus_eval.report.page.html import render_sections
from focus_eval.report.table import Table, TableRow, Value, to_markdown
from focus_eval.rows.records import write_text

if TYPE_CHECKING:
    from markupsafe import Markup

_MARKS = ("<!-- leaderboard -->", "<!-- end of leaderboard -->")


RECALLS = RecordFile(
    "by_length.csv",
    ("benchmark", "name", "k", "bucket", "questions", "frames", *MEASURES),
    ("benchmark", "name", "k", "bucket"),
    order=lambda record: (record["name"] not in BASELINES, record["name"]),
)
DIFFERENCES = RecordFile(
    "differences.csv",
    ("benchmark", "k", "name", "less", "questions", "measure", "value", "low", "high", "p", "p_holm"),
    ("benchmark", "k", "name", "less", "measure"),
    order=lambda record: (record["name"],),
)


def update_page(page: Path, folder: Path, files: Sequence[tuple[str, PublishedFile]]) -> None:
    """Replace the text between the leaderboard's marks in `page` by the tables of the CSV files in `folder`.

    Raises:
        InvalidInput: a page without the two marks.
    """
    head, start, old_text = page.read_text(encoding="utf-8").partition(_MARKS[0])
    _, end, foot = old_text.partition(_MARKS[1])
    if not start or not end:
        raise InvalidInput(f"{page}: lacks the lines {_MARKS[0]} and {_MARKS[1]} to put the table between")
    text = page_text(RECALLS.read(folder), DIFFERENCES.read(folder), files)
    write_text(page, f"{head}{start}\n{text.strip()}\n{end}{foot}")


def page_text(
    recalls: Sequence[Record], differences: Sequence[Record], files: Sequence[tuple[str, PublishedFile]]
) -> str:
    """Return the tables as Markdown, without short videos, random frames and the variants among `files`."""
    variants = {(item.benchmark, str(item.k), name) for name, item in files if item.variant}
    recalls = [
        row
        for row in recalls
        if row["bucket"] != BUCKETS[0]
        and row["name"] != "random"
        and (row["benchmark"], row["k"], row["name"]) not in variants
    ]
    differences = [row for row in differences if (row["benchmark"], row["k"], row["name"]) not in variants]
    settings = {
        (item.benchmark, str(item.k), name): f"{name}, {item.settings}" for name, item in files if item.settings
    }
    recalls, differences = ([_with_settings(row, settings) for row in rows] for rows in (recalls, differences))
    tables = [recall_table(rows) for rows in _by_benchmark(recalls)]
    tables += [_difference_table(rows) for rows in _by_benchmark(differences)]
    return "\n".join(to_markdown(table) for table in tables).replace("### ", "## ")


def _with_settings(row: Record, settings: Mapping[tuple[str, str, str], str]) -> Record:
    """Return `row` with the settings of the selections that it names."""
    names = {side: row[side] for side in ("name", "less") if side in row}
    return {**row, **{side: settings.get((row["benchmark"], row["k"], name), name) for side, name in names.items()}}


def _by_benchmark(rows: Sequence[Record]) -> list[list[Record]]:
    """Return the rows in one list per benchmark."""
    return [
        [row for row in rows if row["benchmark"] == name] for name in dict.fromkeys(row["benchmark"] for row in rows)
    ]


def recall_table(rows: Sequence[Record]) -> Table:
    """Return the table of one benchmark, with the best selection at each tolerance."""
    buckets = list(dict.fromkeys(row["bucket"] for row in rows))
    measures = [measure for measure in MEASURES if any(row[measure] for row in rows)]
    row_by_line: dict[tuple[str, str], dict[str, Record]] = {}
    for row in rows:
        row_by_line.setdefault((row["k"], row["name"]), {})[row["bucket"]] = row
    lines = []
    for keys, row_by_bucket in row_by_line.items():
        percents = [_percent(row_by_bucket.get(bucket), measure) for bucket in buckets for measure in measures]
        lines.append(TableRow(keys, (_mean_frames(list(row_by_bucket.values())), *percents)))
    return Table(
        name=f"leaderboard_{rows[0]['benchmark']}",
        title=f"Evidence in view of published selections (%), {rows[0]['benchmark']}",
        key_titles=("K", "Selection"),
        columns=("Frames", *(f"{bucket}, {measure}" for bucket in buckets for measure in measures)),
        rows=tuple(lines),
        notes=tuple(_leaders(rows, buckets, measures)),
    )


def _percent(row: Record | None, measure: str) -> str:
    """Return a share as percent with one decimal; "" without a value."""
    return f"{100 * float(row[measure]):.1f}" if row and row[measure] else ""


def _mean_frames(rows: Sequence[Record]) -> str:
    """Return the mean number of frames over all questions: of bucket "all", else weighted over the buckets."""
    rows = [row for row in rows if row["bucket"] == "all"] or rows
    frames = sum(float(row["frames"]) * int(row["questions"]) for row in rows)
    return f"{frames / sum(int(row['questions']) for row in rows):.1f}"


def _leaders(rows: Sequence[Record], buckets: Sequence[str], measures: Sequence[str]) -> Iterable[str]:
    """Yield a sentence on the best selection at each K and bucket, by measure if they differ; none for single ones."""
    for k in dict.fromkeys(row["k"] for row in rows):
        for bucket in buckets:
            part = [row for row in rows if (row["k"], row["bucket"]) == (k, bucket) and row["name"] not in BASELINES]
            if len(part) < 2:
                continue
            measures_by_leader: dict[str, list[str]] = {}
            for measure in (name for name in measures if part[0][name]):
                best = max(float(row[measure]) for row in part)
                leader = ", ".join(row["name"] for row in part if float(row[measure]) == best)
                measures_by_leader.setdefault(leader, []).append(measure)
            first, *runners_up = measures_by_leader
            if not runners_up:
                yield f"K = {k}, {bucket}: {first} is first at every tolerance and in nearness."
            else:
                leaders = "; ".join(f"{name} ({', '.join(names)})" for name, names in measures_by_leader.items())
                yield f"K = {k}, {bucket}: first by tolerance: {leaders}."


def _difference_table(rows: Sequence[Record]) -> Table:
    """Return the table of paired differences of one benchmark, in points, with intervals and adjusted p."""
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines: dict[tuple[str, str], dict[str, Value]] = {}
    for row in rows:
        value, low, high = (100 * float(row[name]) if row[name] else None for name in ("value", "low", "high"))
        line = lines.setdefault((row["k"], f"{row['name']} less {row['less']}"), {})
        line[row["measure"]] = Value(
            ours=value, low=low, high=high, is_difference=True, p_adjusted=float(row["p_holm"])
        )
    return Table(
        name=f"leaderboard_differences_{rows[0]['benchmark']}",
        title=f"Paired differences (points), {rows[0]['benchmark']}, videos of {LONG_SECONDS:g} s and more",
        key_titles=("K", "Selections"),
        columns=tuple(measures),
        rows=tuple(TableRow(keys, tuple(line.get(name, Value()) for name in measures)) for keys, line in lines.items()),
    )


Section = tuple[str, "Sequence[str | Table | Mapping[str, str] | Markup]"]
TIER_NOTE = (
    "95 % interval, clustered by video. A tier begins at the first that the paired test shows to be below the best of "
    "the tier before it (sign flips over videos, p adjusted by Holm over all pairs); within a tier nobody is first."
)


def latest(figures: Iterable[Figure]) -> list[Figure]:
    """Return the figures of each sampler's newest version; of those on simulated videos only the last month's."""
    figures = list(figures)
    last = max((item.month for item in figures), default="")
    now = [item for item in figures if item.month in ("", last)]
    newest: dict[tuple[str, str], str] = {}
    for item in now:
        key = (item.sampler, item.status)
        newest[key] = max(newest.get(key, ""), item.version, key=_version)
    return [item for item in now if item.version == newest[item.sampler, item.status]]


def _version(text: str) -> tuple[int, str]:
    """Return a version's number and digest, by which versions are ordered."""
    number, _, digest = text.partition("-")
    return (int(number or 0), digest)


def leaderboards(figures: Sequence[Figure], cards: Mapping[str, Card]) -> list[Table]:
    """Return a table of the current figures per benchmark and K, sorted by tier, then by name."""
    now = [item for item in latest(figures) if item.tier or item.measure == COST]
    places = sorted({(item.benchmark != WORLD, item.benchmark, int(item.k)) for item in now})
    return [
        _leaderboard([item for item in now if (item.benchmark, int(item.k)) == (name, k)], cards)
        for _, name, k in places
    ]


def _leaderboard(figures: Sequence[Figure], cards: Mapping[str, Card]) -> Table:
    """Return the table of one benchmark and K, sorted by tier, then by name."""
    measures = list(dict.fromkeys(item.measure for item in figures))
    lead = NEAR_MEASURE if NEAR_MEASURE in measures else measures[0]
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for item in figures:
        rows.setdefault((item.sampler, item.name), {})[item.measure] = item
    lines = []
    for (sampler, name), by_measure in sorted(rows.items(), key=lambda row: (int(row[1][lead].tier), row[0][1])):
        first, card = by_measure[lead], cards.get(sampler)
        values = (_value(by_measure.get(measure), is_lead=measure == lead) for measure in measures)
        texts = (card.role if card else "baseline", first.status, first.version)
        lines.append(TableRow((first.tier, name), (*texts, *values)))
    head = figures[0]
    seeds = f"; videos of {head.month}, seed {head.seed}" if head.seed else ""
    return Table(
        name=f"tiers_{head.benchmark}_{head.k}",
        title=f"{head.benchmark}, K = {head.k}: {head.questions} questions{seeds}",
        key_titles=(f"Tier, {lead}", "Sampler"),
        columns=("Kind", "Status", "Version", *(f"{measure} (%)" for measure in measures)),
        rows=tuple(lines),
        notes=(TIER_NOTE, *(["Cost: forward equivalents over frames."] if COST in measures else [])),
    )


def _value(item: Figure | None, *, is_lead: bool = False) -> Value:
    """Return a figure as a table's value in percent; a tier is added unless the table is sorted by this measure."""
    if item is None or not item.value:
        return Value()
    low, high = (100 * float(end) if end else None for end in (item.low, item.high))
    digits = 2 if item.measure == COST else 1
    # Every measure has tiers of its own; those of the leading one have a column.
    suffix = f"(tier {item.tier})" if item.tier and not is_lead else ""
    return Value(ours=100 * float(item.value), low=low, high=high, digits=digits, suffix=suffix)


def accuracy_table(figures: Sequence[Figure]) -> Table | None:
    """Return the accuracies that were computed from published answers; None without any."""
    computed = [item for item in figures if item.status == COMPUTED]
    computed.sort(key=lambda item: (item.benchmark, int(item.k), item.measure, item.name))
    rows = [
        TableRow((item.benchmark, item.k, item.name), (item.measure, _value(item), item.status, item.version))
        for item in computed
    ]
    columns, keys = ("Figure", "%", "Status", "Version"), ("Benchmark", "K", "Sampler")
    return (
        Table(name="accuracy", title="Accuracy", key_titles=keys, columns=columns, rows=tuple(rows)) if rows else None
    )


def sampler_table(cards: Iterable[Card]) -> Table:
    """Return a table of role, authors, needs, licence and contents of each card."""
    rows = [
        TableRow((card.name, card.title), (card.role, card.authors, card.needs_text, card.licence, _contents(card)))
        for card in cards
    ]
    columns = ("Kind", "Authors", "Needs", "Licence", "Here")
    return Table(name="samplers", title="Samplers", key_titles=("Name", "Title"), columns=columns, rows=tuple(rows))


def _contents(card: Card) -> str:
    """Return the contents of a card as text: "code, 12 selections, 3 logs"."""
    parts = ["code"] if card.sampler else []
    counts = ((len(card.selections), "selection"), (len(card.answers), "log"))
    return ", ".join([*parts, *(f"{n} {noun}{'s' * (n > 1)}" for n, noun in counts if n)])


def card_lines(card: Card) -> list[str]:
    """Return the lines about one sampler: authors and paper, needs and licence, code."""
    reference = read_references().get(card.paper)
    paper = f"paper: {reference_text(reference) if reference else card.paper}." if card.paper else "no paper."
    options = ", ".join(f"{name}={value}" for name, value in card.options.items())
    code = f"Code: {card.sampler}{f' with {options}' if options else ''}." if card.sampler else "No code here."
    requirements = f"Needs: {card.needs_text}. Licence: {card.licence}."
    return [f"Authors: {card.authors}; {paper}", requirements, code]


def write_site(path: Path, cards: Mapping[str, Card], figures: Sequence[Figure]) -> Path:
    """Write the page of the registry: leaderboards, accuracies and all samplers; return its path."""
    tables = [*leaderboards(figures, cards), *filter(None, [accuracy_table(figures)]), sampler_table(cards.values())]
    return write_page(path, "Registry of frame samplers", [(table.title, [table]) for table in tables])


def write_page(path: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write a page of collapsible sections to `path`; return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_text(path, render_sections(title, sections, n_open=len(sections)))
