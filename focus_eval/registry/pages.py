"""The registry's page: leaderboards with tiers as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.bench.report.methods import read_references, reference_text
from focus_eval.bench.report.page.html import render_sections
from focus_eval.bench.report.table import Table, TableRow, Value
from focus_eval.keyframes.rows.records import write_text
from focus_eval.registry.cards import COMPUTED, Card
from focus_eval.registry.figures import COST, NEAR_MEASURE, WORLD, Figure

if TYPE_CHECKING:
    from markupsafe import Markup

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
        kind = card.role if card else "baseline"
        cells: dict[str, Value | str] = {"Kind": kind, "Status": first.status, "Version": first.version}
        cells |= {f"{item} (%)": _value(by_measure.get(item), is_lead=item == lead) for item in measures}
        lines.append(((first.tier, name), cells))
    head = figures[0]
    seeds = f"; videos of {head.month}, seed {head.seed}" if head.seed else ""
    return Table.of(
        lines,
        name=f"tiers_{head.benchmark}_{head.k}",
        title=f"{head.benchmark}, K = {head.k}: {head.questions} questions{seeds}",
        key_titles=(f"Tier, {lead}", "Sampler"),
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
