"""Writes the registry's pages: a leaderboard per benchmark and K with tiers, recall and cost, a page per sampler."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from focus_eval.registry.cards import CLAIMED, COMPUTED, Card
from focus_eval.registry.cite import read_references, reference_text
from focus_eval.registry.figures import NEAR, Figure
from focus_eval.registry.simulated import COST, WORLD
from focus_eval.report.page.html import render_sections
from focus_eval.report.table import Table, TableRow, Value
from focus_eval.rows.records import write_text

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure as Drawing

Section = tuple[str, "Sequence[str | Table | Mapping[str, str] | Markup]"]
TIER_NOTE = (
    "95 % interval, clustered by video. A tier begins at the first that the paired test shows to be below the best of "
    "the tier before it (sign flips over videos, p adjusted by Holm over all pairs); within a tier nobody is first."
)


def latest(figures: Iterable[Figure]) -> list[Figure]:
    """Return the figures that stand now: of the newest version, and of simulated videos of the last month."""
    figures = list(figures)
    last = max((item.month for item in figures), default="")
    now = [item for item in figures if item.month in ("", last)]
    newest: dict[tuple[str, str], str] = {}
    for item in now:
        key = (item.sampler, item.status)
        newest[key] = max(newest.get(key, ""), item.version, key=_version)
    return [item for item in now if item.version == newest[item.sampler, item.status]]


def _version(text: str) -> tuple[int, str]:
    number, _, digest = text.partition("-")
    return (int(number or 0), digest)


def leaderboards(figures: Sequence[Figure], cards: Mapping[str, Card]) -> list[Table]:
    """Return a table per benchmark and K of the figures that stand now, tier by tier and by name within."""
    now = [item for item in latest(figures) if item.tier or item.measure == COST]
    places = sorted({(item.benchmark != WORLD, item.benchmark, int(item.k)) for item in now})
    return [
        _leaderboard([item for item in now if (item.benchmark, int(item.k)) == (name, k)], cards)
        for _, name, k in places
    ]


def _leaderboard(figures: Sequence[Figure], cards: Mapping[str, Card]) -> Table:
    measures = list(dict.fromkeys(item.measure for item in figures))
    lead = NEAR if NEAR in measures else measures[0]
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for item in figures:
        rows.setdefault((item.sampler, item.name), {})[item.measure] = item
    ordered = sorted(rows.items(), key=lambda row: (int(row[1][lead].tier), row[0][1]))
    made = []
    for (sampler, name), found in ordered:
        first, card = found[lead], cards.get(sampler)
        about = (card.role if card else "baseline", first.status, first.version)
        values = (_value(found.get(measure), is_lead=measure == lead) for measure in measures)
        made.append(TableRow((first.tier, name), (*about, *values)))
    head = figures[0]
    seeds = f"; videos of {head.month}, seed {head.seed}" if head.seed else ""
    return Table(
        name=f"tiers_{head.benchmark}_{head.k}",
        title=f"{head.benchmark}, K = {head.k}: {head.questions} questions{seeds}",
        key_titles=(f"Tier, {lead}", "Sampler"),
        columns=("Kind", "Status", "Version", *(f"{measure} (%)" for measure in measures)),
        rows=tuple(made),
        notes=(TIER_NOTE, *(["Cost: forward equivalents over frames."] if COST in measures else [])),
    )


def _value(item: Figure | None, *, is_lead: bool = False) -> Value:
    if item is None or not item.value:
        return Value()
    low, high = (100 * float(end) if end else None for end in (item.low, item.high))
    digits = 2 if item.measure == COST else 1
    # Every measure has tiers of its own; those of the leading one have a column.
    suffix = f"(tier {item.tier})" if item.tier and not is_lead else ""
    return Value(ours=100 * float(item.value), low=low, high=high, digits=digits, suffix=suffix)


def accuracy_table(figures: Sequence[Figure]) -> Table | None:
    """Return accuracies, computed from published answers and claimed by papers, each with its status; None without."""
    shown = sorted(
        (item for item in figures if item.status in (COMPUTED, CLAIMED)),
        key=lambda item: (item.benchmark, int(item.k), item.measure, item.name, item.status),
    )
    return _listed(shown, name="accuracy", title="Accuracy") if shown else None


def _listed(figures: Sequence[Figure], *, name: str, title: str) -> Table:
    """Return a line per figure with all that is known of it."""
    rows = [
        TableRow(
            (item.benchmark, item.k, item.name),
            (item.measure, _value(item), item.status, item.version, " ".join(filter(None, (item.month, item.seed)))),
        )
        for item in figures
    ]
    columns = ("Figure", "%", "Status", "Version", "Month, seed")
    return Table(name=name, title=title, key_titles=("Benchmark", "K", "Sampler"), columns=columns, rows=tuple(rows))


def sampler_table(cards: Iterable[Card]) -> Table:
    """Return what each sampler is, needs and may be used under."""
    rows = [
        TableRow((card.name, card.title), (card.role, card.authors, card.needs_text, card.licence, _has(card)))
        for card in cards
    ]
    columns = ("Kind", "Authors", "Needs", "Licence", "Here")
    return Table(name="samplers", title="Samplers", key_titles=("Name", "Title"), columns=columns, rows=tuple(rows))


def _has(card: Card) -> str:
    parts = ["code"] if card.sampler else []
    parts += [f"{len(card.selections)} selections"] if card.selections else []
    return ", ".join([*parts, *([f"{len(card.answers)} logs"] if card.answers else [])])


def draw_recall_and_cost(figures: Sequence[Figure]) -> Drawing:
    """Return near recall against forward equivalents, a panel per K, a mark with its interval per sampler.

    Named are those on the frontier: nobody finds as much at the same cost or less. On a page the others are named where
    the reader points at them.
    """
    from focus_eval.report.figures import BASELINE, MARK, STYLES, figure_style, log_if_wide, new_figure

    now = [item for item in latest(figures) if item.benchmark == WORLD]
    ks = sorted({int(item.k) for item in now})
    with figure_style():
        drawn = new_figure(7.0, 3.6)
        panels = drawn.subplots(1, len(ks), sharey=True, squeeze=False)[0]
        for axes, k in zip(panels, ks, strict=True):
            at = [item for item in now if int(item.k) == k]
            cost = {item.name: 100 * float(item.value) for item in at if item.measure == COST and item.value}
            recalls = [item for item in at if item.measure == NEAR and cost.get(item.name, 0.0) > 0]
            best = 0.0
            for item in sorted(recalls, key=lambda found: (cost[found.name], -float(found.value))):
                value, low, high = (100 * float(text) for text in (item.value, item.low, item.high))
                place, style = cost[item.name], STYLES[0] if value > best else BASELINE
                axes.plot([place, place], [low, high], color=style.light, lw=0.6)
                (mark,) = axes.plot([place], [value], color=style.light, marker="o", ms=4)
                mark.set_gid(f"{MARK}{item.name}: {value:.1f} %, cost {place:.2f} %")
                if value > best:
                    axes.annotate(item.name, (place, value), (3, 3), textcoords="offset points", color=style.light)
                best = max(best, value)
            axes.set(xlabel="Forward equivalents (% of frames)", title=f"K = {k}")
            log_if_wide(axes, [cost[item.name] for item in recalls])
        panels[0].set_ylabel(f"Evidence recall {NEAR} (%)")
        return drawn


def sampler_sections(card: Card, figures: Sequence[Figure]) -> list[Section]:
    """Return the page of one sampler: what it is and needs, its figures of all versions and months, its files."""
    from focus_eval.registry.replayed import source_table

    known = read_references().get(card.paper)
    paper = f"paper: {reference_text(known) if known else card.paper}." if card.paper else "no paper."
    needs = f"Needs: {card.needs_text}. Licence: {card.licence}."
    options = ", ".join(f"{name}={value}" for name, value in card.options.items())
    code = f"Code: {card.sampler}{f' with {options}' if options else ''}." if card.sampler else "No code here."
    sections: list[Section] = [(card.title, [f"Authors: {card.authors}; {paper}", needs, code])]
    mine = sorted((item for item in figures if item.sampler == card.name), key=lambda item: item.key)
    if mine:
        sections.append(("Figures of all versions", [_listed(mine, name="history", title="Figures"), TIER_NOTE]))
    files = [(card.label(item), item) for item in (*card.selections, *card.answers)]
    if files:
        sections.append(("Published files", [source_table(files)]))
    return sections


def write_site(folder: Path, cards: Mapping[str, Card], figures: Sequence[Figure]) -> list[Path]:
    """Write `index.html` and a page per sampler, copy the verdicts that lie beside cards, and return the files."""
    from focus_eval.report.figures import page_svg

    pages = {f"{name}.html": name for name in cards}
    sections: list[Section] = [("Pages", [pages])]
    for table in leaderboards(figures, cards):
        sections.append((table.title, [table]))
    if any(item.benchmark == WORLD for item in figures):
        picture = page_svg(draw_recall_and_cost(figures), "Evidence recall against forward equivalents")
        sections.insert(1, ("Recall and cost in simulated videos", [picture]))
    accuracy = accuracy_table(figures)
    sections += [("Accuracy", [accuracy])] if accuracy else []
    sections.append(("Samplers", [sampler_table(cards.values())]))
    folder.mkdir(parents=True, exist_ok=True)
    written = [write_page(folder / "index.html", "Registry of frame samplers", sections)]
    for name, card in cards.items():
        own = sampler_sections(card, figures)
        verdict = card.folder / "verdict.html"
        if verdict.is_file():
            shutil.copyfile(verdict, folder / f"{name}-verdict.html")
            own.insert(1, ("Verdict", [{f"{name}-verdict.html": "As it was submitted"}]))
        written.append(write_page(folder / f"{name}.html", card.title, [*own, ("", [{"index.html": "All samplers"}])]))
    return written


def write_page(path: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write one page and return its path."""
    return write_text(path, render_sections(title, sections))
