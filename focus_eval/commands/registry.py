"""`focus-eval registry`: the samplers known, their figures, and the site of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.commands.console import count_progress, print_folded, print_table, say_what_is_kept
from focus_eval.core.errors import unknown_name
from focus_eval.core.resources import resource_path

if TYPE_CHECKING:
    from focus_eval.registry.cards import Card
    from focus_eval.registry.figures import Figure, Verified
    from focus_eval.registry.replayed import Material

ACTIONS = ("show", "build", "verify")
AnnotationsOption = Annotated[
    list[str], typer.Option(metavar="[BENCHMARK=]FILE", help="Annotation file of each benchmark; repeatable.")
]
RatesOption = Annotated[
    Path | None, typer.Option(help="CSV with the columns id, duration_s and fps, for LongVideoBench.")
]
RegistryOption = Annotated[
    Path | None, typer.Option("--registry", help="Folder of the registry. [default: the shipped one]")
]


def registry(
    action: Annotated[
        str,
        typer.Argument(
            help="show, build (figures and site) or verify (derive figures again).", autocompletion=lambda: ACTIONS
        ),
    ] = ("show"),
    name: Annotated[str, typer.Argument(help="verify: one sampler. [default: all]")] = "",
    place: RegistryOption = None,
    files: Annotated[Path, typer.Option(help="Folder of the published files.")] = Path("."),
    annotations: AnnotationsOption = [],  # noqa: B006
    rates: RatesOption = None,
    out: Annotated[Path, typer.Option(help="build: folder of the site.")] = Path("site"),
    month: Annotated[str, typer.Option(help="build: month of the simulated videos. [default: this one]")] = "",
    seed: Annotated[int | None, typer.Option(help="build: seed of a new month. [default: drawn now]")] = None,
    simulate: Annotated[bool, typer.Option(help="Run the samplers on simulated videos.")] = True,
    rows: Annotated[
        Path | None, typer.Option(help="Folder of the simulated rows. [default: results/runs/registry-MONTH]")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="build: Markdown page to put tables by length into too.")] = None,
) -> None:
    """Show, build or verify the registry of samplers.

    Leaderboards and a static site of all samplers known. Every figure has a status: derived from rows here, replayed
    from published frames, computed from published answers, or claimed by the paper. Samplers stand in tiers, not in
    ranks. verify exits with code 1 if a figure differs.
    """
    from focus_eval.registry.cards import read_registry
    from focus_eval.registry.figures import read_figures
    from focus_eval.registry.replayed import Material

    if action not in ACTIONS:
        raise unknown_name("action", action, ACTIONS)
    place = place or resource_path("registry")
    cards, figures = read_registry(place), read_figures(place)
    material = Material(files, dict(annotation_of(text) for text in annotations), rates)
    if action == "verify":
        _verify(cards, figures, material, name, rows, simulate)
    elif action == "build":
        figures = _derive(place, cards, figures, material, page)
        if simulate:
            figures = _simulate(place, cards, figures, month, seed, rows)
        _build(cards, figures, out)
    else:
        _show(cards, figures)


def annotation_of(text: str) -> tuple[str, Path]:
    """Return benchmark and file of an --annotations option."""
    benchmark, equals, file = text.partition("=")
    return (benchmark, Path(file)) if equals else ("longvideobench", Path(text))


def _show(cards: Mapping[str, Card], figures: list[Figure]) -> None:
    from focus_eval.registry.site import accuracy_table, leaderboards

    for table in [*leaderboards(figures, cards), *filter(None, [accuracy_table(_with_claims(cards, figures))])]:
        print_table(table)


def _with_claims(cards: Mapping[str, Card], figures: list[Figure]) -> list[Figure]:
    from focus_eval.registry.figures import claimed_figures

    return [*figures, *claimed_figures(cards)]


def _derive(
    place: Path, cards: Mapping[str, Card], figures: list[Figure], material: Material, page: Path | None
) -> list[Figure]:
    """Derive the figures of the files at hand, and of the tables by length; return all figures."""
    from focus_eval.registry import replayed
    from focus_eval.registry.figures import computed_figures, replayed_figures, write_figures

    results = place / "by_length.csv"
    beside = place / "differences.csv"
    by_length, differences = replayed.read_rows(results), replayed.read_differences(beside)
    new: list[Figure] = []
    missing: list[str] = []
    for group in replayed.measured_groups(cards.values(), material, missing=missing):
        rows = [
            row for name, found in group.figures.items() for row in replayed.rows_of(group.ground, name, group.k, found)
        ]
        paired = replayed.difference_rows(group.ground, group.k, group.figures)
        by_length = replayed.replaced(by_length, rows)
        differences = replayed.replaced_differences(differences, paired)
        new += replayed_figures(group, cards)
        for note in group.notes:
            print_folded(note)
        if not group.is_whole:
            print_folded(f"{group.ground.benchmark}, K = {group.k}: tiers among the files at hand alone")
    new += [item for card in cards.values() for item in computed_figures(card, material)]
    for line in missing:
        print_folded(line)
    if new:
        replayed.write_rows(results, by_length)
        replayed.write_differences(beside, differences)
        figures = write_figures(place, figures, new)
    if page is not None:
        listed = [(card.label(item), item) for card in cards.values() for item in card.selections]
        replayed.update_page(page, replayed.page_text(by_length, differences, listed))
    return figures


def _simulate(
    place: Path, cards: Mapping[str, Card], figures: list[Figure], month: str, seed: int | None, rows: Path | None
) -> list[Figure]:
    """Run all samplers on the month's videos, and record their figures beside those of earlier months."""
    from focus_eval.registry.figures import write_figures
    from focus_eval.registry.simulated import ranked, seed_of, this_month

    month = month or this_month()
    found = _simulated(ranked(cards), rows, month, seed_of(month, figures, seed=seed))
    return write_figures(place, figures, found)


def _simulated(cards: list[Card], rows: Path | None, month: str, seed: int) -> list[Figure]:
    from focus_eval.registry.simulated import simulated_figures

    folder = rows or Path("results/runs") / f"registry-{month}"
    with say_what_is_kept("finished questions"), count_progress("simulate", "rows") as progress:
        return simulated_figures(cards, folder, seed=seed, month=month, progress=progress)


def _build(cards: Mapping[str, Card], figures: list[Figure], out: Path) -> None:
    from focus_eval.registry.site import write_site

    written = write_site(out, cards, _with_claims(cards, figures))
    size = sum(path.stat().st_size for path in written) / 1e6
    counts = f"{len(written)} pages of {len(cards)} samplers, {len(figures)} figures"
    typer.echo(f"{out / 'index.html'}: {counts}, {size:.1f} MB")


def _verify(
    cards: Mapping[str, Card], figures: list[Figure], material: Material, name: str, rows: Path | None, simulate: bool
) -> None:
    """Derive the recorded figures again and compare them to the last digit."""
    from focus_eval.registry.cards import card_named
    from focus_eval.registry.figures import Verified, claimed_figures, computed_figures, replayed_figures
    from focus_eval.registry.replayed import measured_groups

    chosen = {name: card_named(dict(cards), name)} if name else dict(cards)
    recorded = {item.key: item for item in figures}
    verified = Verified()
    for group in measured_groups(cards.values(), material, only=name, missing=verified.not_derived):
        again = replayed_figures(group, cards)
        if not group.is_whole:
            where = f"{group.ground.benchmark}, K = {group.k}"
            verified.not_derived.append(f"tiers of {where}: not all of its files are at hand")
        again = [item for item in again if not name or item.sampler == name]
        verified.compare(recorded, again, with_tiers=group.is_whole)
    for card in chosen.values():
        verified.compare(recorded, computed_figures(card, material))
    if simulate:
        _simulate_again(chosen, figures, verified, rows)
    if claimed := claimed_figures(chosen):
        verified.not_derived.append(f"{len(claimed)} figures are claimed by papers")
    for line in [*verified.not_derived, *verified.differing]:
        print_folded(line)
    typer.echo(f"{verified.n_same} figures derived again as recorded, {len(verified.differing)} differ")
    if verified.differing:
        raise typer.Exit(1)


def _simulate_again(chosen: Mapping[str, Card], figures: list[Figure], verified: Verified, rows: Path | None) -> None:
    """Derive the figures of simulated videos of the last month, and say which are of code that is not here."""
    from tempfile import TemporaryDirectory

    from focus_eval.registry.simulated import ranked, version_of

    cards = ranked(chosen)
    versions = {card.name: version_of(card) for card in cards}
    mine = [item for item in figures if item.month and item.sampler in versions]
    month = max((item.month for item in mine), default="")
    older = [item for item in mine if item.version != versions[item.sampler] or item.month != month]
    verified.not_derived += [f"{item.name}, {item.month}, version {item.version}: kept as it was" for item in older]
    seeds = {int(item.seed) for item in mine if item.month == month}
    if not seeds:
        return
    with TemporaryDirectory() as made:
        again = _simulated(cards, rows or Path(made), month, min(seeds))
    # Tiers are among all samplers.
    verified.compare({item.key: item for item in figures}, again, with_tiers=len(cards) > 1)
