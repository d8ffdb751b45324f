"""`focus-eval registry` and `submit`: the samplers known, their figures and page, and a new folder of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.core.errors import unknown_name
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.commands.console import (
    MinutesOption,
    count_progress,
    print_folded,
    print_table,
    say_how_to_continue,
)

if TYPE_CHECKING:
    from focus_eval.registry.cards import Card
    from focus_eval.registry.figures import Figure, Verification
    from focus_eval.registry.replayed import Material

if TYPE_CHECKING:
    from focus_eval.registry.cards import Card
    from focus_eval.registry.figures import Figure
    from focus_eval.registry.replayed import Material

ACTIONS = ("show", "build", "verify")
AnnotationsOption = Annotated[
    list[str], typer.Option(metavar="[BENCHMARK=]FILE", help="Annotation file of each benchmark; repeatable.")
]
RatesOption = Annotated[
    list[str], typer.Option(metavar="[BENCHMARK=]FILE", help="CSV with the columns id, duration_s and fps; repeatable.")
]
ScenesOption = Annotated[
    list[str],
    typer.Option(metavar="BENCHMARK=FILE", help="Scenes of a benchmark, as in focus-eval recall; repeatable."),
]
RegistryOption = Annotated[
    Path | None, typer.Option("--registry", help="Folder of the registry. [default: the shipped one]")
]


def registry(
    action: Annotated[
        str,
        typer.Argument(
            help="show, build (figures and page) or verify (derive figures again).", autocompletion=lambda: ACTIONS
        ),
    ] = ("show"),
    name: Annotated[str, typer.Argument(help="verify: one sampler. [default: all]")] = "",
    place: RegistryOption = None,
    files: Annotated[Path, typer.Option(help="Folder of the published files.")] = Path("."),
    annotations: AnnotationsOption = [],  # noqa: B006
    rates: RatesOption = [],  # noqa: B006
    scenes: ScenesOption = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="build: folder of the page.")] = Path("site"),
    seed: Annotated[
        int | None, typer.Option(help="build: seed of new simulated videos. [default: the last recorded]")
    ] = None,
    simulate: Annotated[bool, typer.Option(help="Run the samplers on simulated videos.")] = True,
) -> None:
    """Show, build or verify the registry of samplers.

    Every figure has a status: derived from rows here, replayed from published frames, or computed from published
    answers. Samplers are grouped in tiers, not ranked. verify exits with code 1 if a figure differs.
    """
    from focus_eval.registry.cards import read_registry
    from focus_eval.registry.figures import read_figures
    from focus_eval.registry.pages import write_site

    if action not in ACTIONS:
        raise unknown_name("action", action, ACTIONS)
    place = place or resource_path("registry")
    cards, figures = read_registry(place), read_figures(place)
    material = material_of(files, annotations, rates, scenes)
    if action == "verify":
        _verify(cards, figures, material, name, simulate)
    elif action == "build":
        out.mkdir(parents=True, exist_ok=True)  # one that cannot be is named before minutes of simulation
        figures = _derive(place, cards, figures, material)
        if simulate:
            figures = _simulate(place, cards, figures, seed)
        path = write_site(out / "index.html", cards, figures)
        typer.echo(f"{path}: {len(cards)} samplers, {len(figures)} figures")
    else:
        _show(cards, figures)


def material_of(files: Path, annotations: Sequence[str], rates: Sequence[str], scenes: Sequence[str]) -> Material:
    """Return the folder of published files with the files of each benchmark that the options name."""
    from focus_eval.registry.replayed import Material

    by_benchmark = [dict(map(_file_of_benchmark, texts)) for texts in (annotations, rates, scenes)]
    return Material(files, annotations=by_benchmark[0], rates=by_benchmark[1], scenes=by_benchmark[2])


def _file_of_benchmark(text: str) -> tuple[str, Path]:
    """Return benchmark and file of an option's [BENCHMARK=]FILE; LongVideoBench if it names no benchmark."""
    benchmark, equals, file = text.partition("=")
    return (benchmark, Path(file)) if equals else ("longvideobench", Path(text))


def _show(cards: Mapping[str, Card], figures: list[Figure]) -> None:
    """Print the leaderboards and the table of accuracies."""
    from focus_eval.registry.pages import accuracy_table, leaderboards

    for table in [*leaderboards(figures, cards), *filter(None, [accuracy_table(figures)])]:
        print_table(table)


def _derive(place: Path, cards: Mapping[str, Card], figures: list[Figure], material: Material) -> list[Figure]:
    """Derive the figures of the files at hand; return all figures."""
    from focus_eval.registry.figures import computed_figures, replayed_figures, write_figures
    from focus_eval.registry.replayed import measured_groups

    new: list[Figure] = []
    missing: list[str] = []
    for group in measured_groups(cards.values(), material, missing=missing):
        new += replayed_figures(group, cards)
        for note in group.notes:
            print_folded(note)
        if not group.is_whole:
            print_folded(f"{group.ground.benchmark}, K = {group.k}: tiers among the files at hand alone")
    new += [item for card in cards.values() for item in computed_figures(card, material)]
    for line in missing:
        print_folded(line)
    return write_figures(place, new) if new else figures


def _simulate(place: Path, cards: Mapping[str, Card], figures: list[Figure], seed: int | None) -> list[Figure]:
    """Run all samplers on simulated videos, and record their figures beside those of earlier ones."""
    from focus_eval.registry.figures import ranked, videos_of, write_figures

    month, seed = videos_of(figures, seed)
    return write_figures(place, _simulated(ranked(cards), Path("results/runs") / f"registry-{month}", month, seed))


def _simulated(cards: list[Card], folder: Path, month: str, seed: int) -> list[Figure]:
    """Run the samplers on simulated videos of `seed` under a progress bar; return their figures."""
    from focus_eval.registry.figures import simulated_figures

    with say_how_to_continue("finished questions"), count_progress("simulate", "rows") as progress:
        return simulated_figures(cards, folder, seed=seed, month=month, progress=progress)


def _verify(cards: Mapping[str, Card], figures: list[Figure], material: Material, name: str, simulate: bool) -> None:
    """Derive the recorded figures again and compare them to the last digit."""
    from focus_eval.registry.cards import card_named
    from focus_eval.registry.figures import Verification, computed_figures, replayed_figures
    from focus_eval.registry.replayed import measured_groups

    verified_cards = {name: card_named(dict(cards), name)} if name else dict(cards)
    recorded = {item.key: item for item in figures}
    result = Verification()
    for group in measured_groups(cards.values(), material, only=name, missing=result.skipped):
        derived = [item for item in replayed_figures(group, cards) if not name or item.sampler == name]
        if not group.is_whole:
            result.skipped.append(f"tiers of {group.ground.benchmark}, K = {group.k}: not all of its files are at hand")
        result.compare(recorded, derived, with_tiers=group.is_whole)
    for card in verified_cards.values():
        result.compare(recorded, computed_figures(card, material))
    if simulate:
        _verify_simulated(verified_cards, figures, result)
    for line in [*result.skipped, *result.differences]:
        print_folded(line)
    typer.echo(f"{result.n_same} figures derived again as recorded, {len(result.differences)} differ")
    if result.differences:
        raise typer.Exit(1)


def _verify_simulated(cards: Mapping[str, Card], figures: list[Figure], result: Verification) -> None:
    """Derive the figures of simulated videos of the last month again; name those whose code is not here."""
    from tempfile import TemporaryDirectory

    from focus_eval.registry.figures import ranked, version_of

    ranked_cards = ranked(cards)
    versions = {card.name: version_of(card) for card in ranked_cards}
    recorded = [item for item in figures if item.month and item.sampler in versions]
    month = max((item.month for item in recorded), default="")
    older = [item for item in recorded if item.version != versions[item.sampler] or item.month != month]
    result.skipped += [f"{item.name}, {item.month}, version {item.version}: not derived again" for item in older]
    seeds = {int(item.seed) for item in recorded if item.month == month}
    if not seeds:
        return
    with TemporaryDirectory() as folder:
        derived = _simulated(ranked_cards, Path(folder), month, min(seeds))
    # Tiers are among all samplers.
    result.compare({item.key: item for item in figures}, derived, with_tiers=len(ranked_cards) > 1)


def submit(
    sampler: Annotated[
        str, typer.Argument(help="FILE.py:Class or a registered name, with options. [default: the card's, if any]")
    ] = "",
    card: Annotated[
        Path, typer.Option(help="The sampler's card (YAML); the files that it names lie beside it.")
    ] = Path("card.yaml"),
    out: Annotated[Path, typer.Option(help="Folder to write NAME/ to.")] = Path("registry/samplers"),
    annotations: AnnotationsOption = [],  # noqa: B006
    rates: RatesOption = [],  # noqa: B006
    scenes: ScenesOption = [],  # noqa: B006
    place: RegistryOption = None,
    videos: Annotated[
        int | None, typer.Option(help="Simulated videos of the verdict. [default: until all is decided]", min=5)
    ] = None,
    minutes: MinutesOption = 10.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the verdict's videos. [default: drawn now]")] = None,
) -> None:
    """Make a registry folder of a sampler or selections.

    Checks a sampler, and compares it with controls on simulated videos of a new seed.
    Measures selections on annotated evidence. Writes nothing if a step fails.
    """
    from focus_eval.core.resources import resource_path
    from focus_eval.registry.cards import read_registry
    from focus_eval.registry.submission import submission

    material = material_of(Path(card).parent, annotations, rates, scenes)
    registered_cards = read_registry(place or resource_path("registry"))
    with submission(card, sampler, out, material, registered_cards) as new_card:
        figures = _figures(new_card, material)
        if new_card.sampler:
            _verdict(new_card, videos=videos, minutes=minutes, seed=seed)
        _write_page(new_card, figures)
    typer.echo(str(out / new_card.name))


def _figures(card: Card, material: Material) -> list[Figure]:
    """Measure the card's selections and answers, and print the table."""
    from focus_eval.registry.figures import computed_figures, replayed_figures
    from focus_eval.registry.pages import leaderboards
    from focus_eval.registry.replayed import measured_groups

    cards = {card.name: card}
    measurable_items = [item for item in card.selections if item.benchmark in material.annotations]
    for item in card.selections:
        if item not in measurable_items:
            print_folded(f"{item.file}: not measured, no annotation of {item.benchmark} is given (--annotations)")
    measurable = card.model_copy(update={"selections": tuple(measurable_items)})
    figures = [item for group in measured_groups([measurable], material) for item in replayed_figures(group, cards)]
    for table in leaderboards(figures, cards):
        print_table(table)
    return [*figures, *computed_figures(card, material)]


def _verdict(card: Card, **options: Any) -> None:
    """Check the sampler and compare it with the controls at its cost; write the page beside the card."""
    from focus_eval.lab.commands.compare_samplers import compare_samplers

    options_text = ",".join(f"{name}={value}" for name, value in card.options.items())
    text = f"{card.sampler_text}:{options_text}" if options_text else card.sampler_text
    fixed: dict[str, Any] = {
        "margin": 3.0,
        "world": [],
        "relevance": None,
        "scan_relevance": None,
        "other_samplers": [],
    }
    with TemporaryDirectory() as work:
        compare_samplers(text, out=Path(work), **fixed, **options)
        shutil.copyfile(Path(work) / "compare.html", card.folder / "verdict.html")


def _write_page(card: Card, figures: list[Figure]) -> None:
    """Write the folder's own page: the sampler, its verdict and its figures."""
    from focus_eval.registry.pages import Section, card_lines, leaderboards, write_page

    sections: list[Section] = [(card.title, card_lines(card))]
    if card.sampler:
        sections.append(("Verdict", [{"verdict.html": "On simulated videos"}]))
    sections += [(table.title, [table]) for table in leaderboards(figures, {card.name: card})]
    write_page(card.folder / "index.html", card.title, sections)
