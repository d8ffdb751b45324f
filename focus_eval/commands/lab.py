"""`focus-eval check`, `simulate` and `compare-samplers`: from a sampler to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focus_eval.commands.console import print_table, progress_bar, say_what_is_kept, write_table
from focus_eval.core.options import parse_assignments
from focus_eval.core.resources import resource_path
from focus_eval.rows.records import replace_file

if TYPE_CHECKING:
    import pandas as pd

    from focus_eval.report.run import Run
    from focus_eval.report.table import Table
    from focus_eval.samplers.contract import Verdict
    from focus_eval.simulation.running import SimulationConfig


def check(
    sampler: Annotated[str, typer.Argument(help="Name of a sampler, or FILE.py:Class.")],
    option: Annotated[
        list[str], typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the sampler; repeatable.")
    ] = [],  # noqa: B006
    seconds: Annotated[float, typer.Option(help="Processor seconds allowed for a ten-hour video.")] = 30.0,
) -> None:
    """Check that a sampler keeps the sampler contract.

    Tries counts, ranges, determinism and budgets on videos from one frame to ten hours. Exits with code 1 if a rule of
    the contract is broken.
    """
    from focus_eval.samplers.contract import check_sampler

    verdict = check_sampler(sampler, parse_assignments(option), seconds_allowed=seconds)
    print(f"{sampler}{_declared(sampler, verdict)}")
    _print_promises(verdict)
    _print_end(verdict)
    if verdict.broken:
        raise typer.Exit(1)


def _declared(sampler: str, verdict: Verdict) -> str:
    """Return what the class declares of itself, where it can be loaded."""
    from focus_eval.samplers.registry import sampler_class

    if any(item.promise == "class" for item in verdict.broken):
        return ""
    kind = sampler_class(sampler)
    names = ("may_return_fewer", "may_return_more", "may_repeat", "needs_logits", "needs_embeddings", "needs_evidence")
    said = [name for name in names if getattr(kind, name)]
    pulls = "pulls through the ledger" if kind.needs_encoder else "never pulls"
    return f" ({kind.name}, {kind.role}; declares: {', '.join([pulls, *said])})"


def _print_promises(verdict: Verdict) -> None:
    from focus_eval.samplers.contract import PROMISES

    broken = {item.promise: item for item in verdict.broken}
    for promise, text in PROMISES.items():
        if promise not in broken:
            if promise not in verdict.not_tried:
                print(f"  ok      {promise:<12} {text}")
            continue
        found = broken[promise]
        print(f"  BROKEN  {promise:<12} {text}")
        if found.case is not None:
            print(f"          smallest case: {found.case}")
        print(f"          {found.message}")


def _print_end(verdict: Verdict) -> None:
    if verdict.not_tried:
        print(f"  not tried until the rest is fixed: {', '.join(verdict.not_tried)}")
    took = ""
    if verdict.ten_hours_seconds is not None:
        took = f"; ten hours of video took {verdict.ten_hours_seconds:.2f} s and {verdict.ten_hours_pulls} pulls"
    n = len(verdict.broken)
    outcome = "every promise is kept" if n == 0 else f"{n} {'promise is' if n == 1 else 'promises are'} broken"
    print(f"{outcome} on {verdict.n_cases} questions{took}")


def simulate(
    config: Annotated[Path | None, typer.Argument(help="Simulation file (YAML). [default: the shipped one]")] = None,
    limit: Annotated[int | None, typer.Option(help="Simulate only the first videos of each world.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. [default: results/runs/NAME]")] = None,
    workers: Annotated[int, typer.Option(help="Number of processes.", min=1)] = 2,
) -> None:
    """Run samplers on simulated or recorded relevance.

    The evidence is known, so the tables show how much of it each sampler finds.

    Rows, tables and figures are those of a real run. The same command continues a stopped run.
    """
    loaded = load_simulation(config)
    loaded.check_baseline()  # before the minutes that a simulation takes
    folder = out or Path("results/runs") / loaded.name
    run_with_progress(loaded, folder, limit=limit, workers=workers)
    for path in show_simulation(folder, baseline=loaded.baseline):
        typer.echo(str(path))


def load_simulation(path: Path | None) -> SimulationConfig:
    """Return the simulation file at `path`, or the shipped one.

    Raises:
        InvalidInput: as the matrix files: `file:line: key: what`.
    """
    from focus_eval.matrix.config import check, load_yaml
    from focus_eval.simulation.running import SimulationConfig

    file = path or resource_path("configs") / "simulation.yaml"
    return check(SimulationConfig, load_yaml(file), file)


def run_with_progress(loaded: SimulationConfig, folder: Path, *, limit: int | None, workers: int = 2) -> None:
    """Run a simulation under a bar."""
    from focus_eval.simulation.running import run_simulation

    with say_what_is_kept("finished questions"), progress_bar("rows") as bar:
        task = bar.add_task("simulate", total=None)
        run_simulation(
            loaded,
            folder,
            limit=limit,
            n_workers=workers,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )


def show_simulation(folder: Path, *, baseline: str) -> list[Path]:
    """Print the tables of a simulation, write them and the figures beside its rows, and return what was written."""
    from focus_eval.report.run import load_run

    run = load_run(folder)
    tables = simulation_tables(run, folder, baseline)
    for table in tables[:2]:
        print_table(table)
    written = [folder / "simulation.md", folder / "simulation.tex"]
    for path in written:
        write_table(tables, path)
    for table in tables:
        written.append(folder / f"simulation-{table.name}.csv")
        write_table([table], written[-1])
    return [*written, *_figures(run, folder)]


def simulation_tables(run: Run, folder: Path, baseline: str) -> list[Table]:
    """Return recall, its differences to the baseline by length of the video, and by length and height of events."""
    from focus_eval.report.lab import (
        differences_by_event,
        differences_by_length,
        lab_frame,
        read_traces,
        recall_overview,
    )

    frame = lab_frame(run)
    by_event = differences_by_event(frame, read_traces(folder), baseline)
    return [recall_overview(frame), differences_by_length(frame, baseline), *by_event]


def _figures(run: Run, folder: Path) -> list[Path]:
    from focus_eval.report.figures import save_figure
    from focus_eval.report.lab import draw_against, draw_frontier, lab_frame, read_traces

    frame = lab_frame(run)
    written = save_figure(draw_frontier(frame), folder / "figures" / "frontier.pdf")
    frame = frame.merge(read_traces(folder), on=["benchmark", "question_id"], how="left")
    frame["minutes"] = frame["seconds"] / 60
    figure = draw_against(frame, "minutes", (1, 3, 10, 20, 60, 180, 600), label="Length (min)")
    written += save_figure(figure, folder / "figures" / "by_length.pdf")
    if "event_seconds" in frame:
        figure = draw_against(frame, "event_seconds", (0.5, 1, 2, 4, 8), label="Mean length of events (s)")
        written += save_figure(figure, folder / "figures" / "by_event_length.pdf")
    return written


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
    from focus_eval.report.run import load_run
    from focus_eval.samplers.registry import make_sampler, sampler_name
    from focus_eval.simulation.running import SimulationConfig
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
    from focus_eval.report.figures import page_svg
    from focus_eval.report.lab import draw_frontier, lab_frame, recall_overview, verdict_lines, verdict_table
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
    sections.append(
        (
            "Recall and cost",
            [recall_overview(frame), page_svg(draw_frontier(frame), "Evidence recall against frames scored")],
        )
    )
    sections += _timelines(frame, config, name, names)
    return sections


def _timelines(
    frame: pd.DataFrame, config: SimulationConfig, name: str, names: list[str]
) -> list[tuple[str, list[str | Table]]]:
    from focus_eval.report.figures import draw_timelines, page_svg
    from focus_eval.report.lab import telling_questions
    from focus_eval.simulation.running import select_on, sources

    source = sources(config)[0]
    frame = frame[frame["benchmark"] == source.name]
    series = [sampler for sampler, k in config.series() if k == _K[0]]
    sections: list[tuple[str, list[str | Table]]] = []
    for word, questions in zip(("wins", "loses"), telling_questions(frame, name, names[0], _K[0]), strict=True):
        pictures: list[str | Table] = []
        for question in questions:
            number = int(question.rpartition("-")[2])
            rows = [select_on(source, config, drawn, _K[0], number) for drawn in series]
            pictures.append(page_svg(draw_timelines(rows), f"What each sampler chose for {question}"))
        heading = f"Where {name} {word} against {names[0]}, K = {_K[0]}"
        sections.append((heading, pictures or ["No question."]))
    return sections


def _demo_section(folder: Path, samplers: list[str]) -> tuple[str, list[str | Table]]:
    from focus_eval.commands.demo import run_demo
    from focus_eval.report.lab import demo_tables
    from focus_eval.report.run import load_run

    data = Path("results/demo-quick")
    run_demo("demo-quick", folder / "demo", data, quick=True, k=[], samplers=samplers)
    table = demo_tables(load_run(folder / "demo"), "focus")[0]
    print_table(table)
    said = "Two short videos through the real pipeline: reading, encoding, answering. Too few to decide anything."
    return ("The quick demo", [said, table])


def _write(page: Path, title: str, sections: list[tuple[str, list[str | Table]]]) -> None:
    from focus_eval.report.page.html import render_sections

    page.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(page) as part:
        part.write_text(render_sections(title, sections), encoding="utf-8")
