"""`focus-eval submit`: a sampler or a file of selections becomes a folder of the registry."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.commands.console import MinutesOption, print_folded, print_table
from focus_eval.commands.registry import AnnotationsOption, RatesOption, RegistryOption, ScenesOption, material_of

if TYPE_CHECKING:
    from focus_eval.registry.cards import Card
    from focus_eval.registry.figures import Figure
    from focus_eval.registry.replayed import Material


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
    from focus_eval.commands.compare import compare_samplers

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
