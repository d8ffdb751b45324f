"""`focus-eval compare-samplers`: check, simulation and demo of a new sampler in one command, on one page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

    from focus_eval.report.run import Run
    from focus_eval.report.table import Table
    from focus_eval.simulation.config import SimulationConfig

_K = [8, 32]


def compare_samplers(
    sampler: Annotated[str, typer.Argument(help="Name of the new sampler, or FILE.py:Class.")],
    others: Annotated[
        list[str],
        typer.Argument(metavar="OTHERS", help="Samplers to compare with. [default: focus topk even_diverse]"),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder to write to. [default: results/runs/compare-NAME]")] = None,
    videos: Annotated[int, typer.Option(help="Number of simulated videos of each world.", min=5)] = 150,
    world: Annotated[
        list[str], typer.Option(metavar="NAME", help="Simulated world; repeatable. [default: calibrated]")
    ] = [],  # noqa: B006
    demo: Annotated[bool, typer.Option(help="Run the quick demo too.")] = True,
) -> None:
    """Compare a new sampler with others, on one page.

    Checks the sampler contract, then measures how much evidence each sampler finds. Exits with code 1 at once if the
    contract is broken.
    """
    from focus_eval.commands.check import check
    from focus_eval.commands.simulate import run_with_progress
    from focus_eval.report.run import load_run
    from focus_eval.samplers.registry import make_sampler, sampler_name
    from focus_eval.simulation.config import SimulationConfig
    from focus_eval.simulation.worlds import world_of

    name = sampler_name(sampler)
    against = [other for other in others or ["focus", "topk", "even_diverse"] if make_sampler(other).name != name]
    if not against:
        raise typer.BadParameter(f"name a sampler other than {name} to compare it with", param_hint="OTHERS")
    names = [make_sampler(other).name for other in against]
    for entry in world:
        world_of(entry)
    check(sampler, option=[], seconds=30.0)
    folder = out or Path("results/runs") / f"compare-{name.replace('/', '_').replace(':', '_')}"
    config = SimulationConfig(
        name=f"compare {name}",
        videos=videos,
        worlds=list(world) or ["calibrated"],
        samplers=[sampler, *against],
        k=_K,
    )
    run_with_progress(config, folder / "simulation", limit=None)
    sections = simulation_sections(load_run(folder / "simulation"), config, name, names)
    if demo:
        sections.append(_demo_section(folder, [sampler, *against]))
    page = folder / "compare.html"
    _write(page, f"{name} against {', '.join(names)}", sections)
    typer.echo(str(page))


def simulation_sections(
    run: Run, config: SimulationConfig, name: str, names: list[str]
) -> list[tuple[str, list[str | Table]]]:
    """Return the verdict of every world, the frontier, and timelines of questions won and lost against the first."""
    from focus_eval.commands.tables import print_table
    from focus_eval.report.lab import lab_frame, recall_overview
    from focus_eval.report.lab_figures import draw_frontier
    from focus_eval.report.verdict import verdict_lines, verdict_table
    from focus_eval.simulation.running import selection_ids

    # Not what an earlier state of the sampler's file chose into this folder.
    frame = lab_frame(run, only=selection_ids(config))
    sections: list[tuple[str, list[str | Table]]] = []
    for world, part in frame.groupby("benchmark", sort=False):
        table = verdict_table(part, name, names)
        print_table(table)
        lines = verdict_lines(table, name)
        for line in lines:
            typer.echo(line)
        sections.append((f"Verdict in the world {world!r}, {part['question_id'].nunique()} videos", [*lines, table]))
    sections.append(("Recall and cost", [recall_overview(frame), _svg(draw_frontier(frame))]))
    sections += _timelines(frame, config, name, names)
    return sections


def _timelines(
    frame: pd.DataFrame, config: SimulationConfig, name: str, names: list[str]
) -> list[tuple[str, list[str | Table]]]:
    from focus_eval.report.figures import draw_timelines
    from focus_eval.report.verdict import telling_questions
    from focus_eval.simulation.running import select_on, sources

    source = sources(config)[0]
    frame = frame[frame["benchmark"] == source.name]
    series = [sampler for sampler, k in config.series() if k == _K[0]]
    sections: list[tuple[str, list[str | Table]]] = []
    for word, questions in zip(("wins", "loses"), telling_questions(frame, name, names[0], _K[0]), strict=True):
        pictures: list[str | Table] = []
        for question in questions:
            number = int(question.rpartition("-")[2])
            pictures.append(_svg(draw_timelines([select_on(source, config, drawn, _K[0], number) for drawn in series])))
        heading = f"Where {name} {word} against {names[0]}, K = {_K[0]}"
        sections.append((heading, pictures or ["No question."]))
    return sections


def _demo_section(folder: Path, samplers: list[str]) -> tuple[str, list[str | Table]]:
    from focus_eval.commands.demo import run_demo
    from focus_eval.commands.tables import print_table
    from focus_eval.report.lab import demo_tables
    from focus_eval.report.run import load_run

    data = Path("results/demo-quick")
    run_demo("demo-quick", folder / "demo", data, quick=True, k=[], samplers=samplers)
    table = demo_tables(load_run(folder / "demo"), "focus")[0]
    print_table(table)
    said = "Two short videos through the real pipeline: reading, encoding, answering. Too few to decide anything."
    return ("The quick demo", [said, table])


def _svg(figure: Picture) -> str:
    from focus_eval.report.figures import figure_style

    text = io.StringIO()
    with figure_style():
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]


def _write(page: Path, title: str, sections: list[tuple[str, list[str | Table]]]) -> None:
    from focus_eval.report.verdict import verdict_page
    from focus_eval.rows.records import replace_file

    page.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(page) as part:
        part.write_text(verdict_page(title, sections), encoding="utf-8")
