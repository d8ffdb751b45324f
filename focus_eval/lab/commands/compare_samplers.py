"""`focus-eval compare-samplers` compares a new sampler with others and writes the verdict as one page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.bench.commands.printing import print_table
from focus_eval.core.files import write_text
from focus_eval.core.options import parse_named
from focus_eval.keyframes.commands.console import (
    MinutesOption,
    counted,
    name_completion,
    naming_out,
    print_folded,
    refuse_idle_options,
)
from focus_eval.lab.commands.check import (
    RelevanceOption,
    ScanRelevanceOption,
    check,
    print_infeasible,
    replayed,
    run_with_progress,
)

if TYPE_CHECKING:
    import pandas as pd

    from focus_eval.bench.report.rendering import Table
    from focus_eval.keyframes.samplers.base import FrameSampler
    from focus_eval.lab.simulation import SamplerEntry, SimulationConfig
    from focus_eval.lab.verdict import Rival, RivalComparison

_K = [8, 32]
# Budgets of the frontier's controls, in percent of the video's frames.
_FRONTIER_PERCENT = [0.25, 0.5, 1.0, 2.0, 4.0]

Section = tuple[str, "list[str | Table]"]


def compare_samplers(
    context: typer.Context,
    sampler: Annotated[
        str,
        typer.Argument(
            help="Name of the new sampler, or FILE.py:Class, with :OPTION=VALUE.",
            autocompletion=name_completion("sampler"),
        ),
    ],
    other_samplers: Annotated[
        list[str],
        typer.Argument(
            metavar="OTHERS",
            autocompletion=name_completion("sampler"),
            help="Samplers to compare with, beside the controls. [default: focus]",
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder to write to. [default: results/runs/compare-NAME]")] = None,
    videos: Annotated[
        int | None,
        typer.Option(help="Simulated videos of each world. [default: 150 to 1200, until all is decided]", min=5),
    ] = None,
    minutes: MinutesOption = 10.0,
    margin: Annotated[float, typer.Option(help="Points of recall within which samplers are equivalent.")] = 3.0,
    world: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="Simulated world; repeatable. [default: realistic, and with 65 % blind questions]"
        ),
    ] = [],  # noqa: B006
    relevance: RelevanceOption = None,
    scan_relevance: ScanRelevanceOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the videos. [default: 0; for FILE.py:Class a new one]")
    ] = None,
) -> None:
    """Compare a new sampler with others, on one page.

    Checks the sampler contract (exits with code 1 if it is broken), then compares evidence recall with other samplers,
    and with evenly spread pulls at the new sampler's own cost.
    """
    from focus_eval.bench.report.page.html import render_sections
    from focus_eval.lab.subprocess_sampler import make_apart
    from focus_eval.lab.verdict import LOOKS

    if relevance is not None:
        refuse_idle_options(context, "beside --relevance, which has its own: leave one out", "videos", "world")
    # Start the clock here: the check and the page count towards the minutes.
    deadline = Deadline(minutes)
    new, rivals = make_apart(sampler), _named(sampler, other_samplers)
    config = _configured(sampler, rivals, world, videos=videos or LOOKS[0], **replayed(relevance, scan_relevance))
    file, options = parse_named(sampler)
    check(file, option=[f"{name}={value}" for name, value in options.items()], seconds=30.0)
    folder = out or Path("results/runs") / f"compare-{new.name.replace('/', '_').replace(':', '_')}"
    config = config if seed is None else config.model_copy(update={"seed": seed})
    with naming_out(folder):
        sections = _run(config, folder, _looks(config, n_videos=videos), deadline, margin)
    title = f"{new.name} against {', '.join([*rivals, 'controls at its cost'])}"
    typer.echo(str(write_text(folder / "compare.html", render_sections(title, sections))))


def _looks(config: SimulationConfig, *, n_videos: int | None) -> Sequence[int]:
    """Numbers of videos after which the samplers are compared; `n_videos` is the user's, None for the usual ones."""
    from focus_eval.lab.simulation import trace_sources
    from focus_eval.lab.verdict import LOOKS

    if config.recorded:  # the number of recorded videos is fixed
        return [max(len({trace.video for trace in source.traces}) for source in trace_sources(config))]
    return LOOKS if n_videos is None else [n_videos]


class Deadline:
    """The time limit of the whole command; the clock starts when the object is created."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._started = time.monotonic()

    def seconds_left(self, share: float = 1.0) -> float:
        """Return the seconds until `share` of the time limit is used up; negative after that."""
        return 60 * share * self.minutes - self.seconds_spent

    @property
    def seconds_spent(self) -> float:
        """Seconds since the deadline was created."""
        return time.monotonic() - self._started


# Shares of the time limit at which each part must end: samplers on the first videos; controls and further looks;
# controls at several budgets. The remaining time is for the page.
_SAMPLERS_SHARE, _LOOKS_SHARE, _FRONTIER_SHARE = 0.4, 0.65, 0.8
_LEAST_VIDEOS = 5


def _run_in_time(config: SimulationConfig, folder: Path, n_videos: int, seconds: Callable[[], float]) -> int:
    """Run as many of the first `n_videos` videos as the seconds left allow; return how many ran.

    Each step runs up to four times as many videos as the step before, but no more than fit into the seconds left at
    the pace of the step before.
    """
    n_run, n_next = 0, min(_LEAST_VIDEOS, n_videos)
    while True:
        started = time.monotonic()
        run_with_progress(config, folder, limit=n_next)
        # The pace counts new videos only, since those of the step before already have rows.
        pace, n_run = max(time.monotonic() - started, 1e-3) / (n_next - n_run), n_next
        if n_run == n_videos:
            return n_run
        n_next = min(4 * n_run, n_videos, n_run + int(max(0.0, seconds()) / pace))
        if n_next == n_run:
            return n_run


def _configured(sampler: str, rivals: list[str], world: list[str], **settings: Any) -> SimulationConfig:
    """The simulation that compares `sampler` with `rivals`; raises an error for an unknown world."""
    from focus_eval.lab.simulation import SimulationConfig
    from focus_eval.lab.worlds import world_of

    for entry in world:
        world_of(entry)
    worlds: list[str | dict[str, object]] = [*world] or ["realistic", "realistic:blind=0.65"]
    return SimulationConfig(name=f"compare {sampler}", worlds=worlds, samplers=[sampler, *rivals], k=_K, **settings)


def _run(
    config: SimulationConfig, folder: Path, looks: Sequence[int], deadline: Deadline, margin: float
) -> list[Section]:
    """Run the simulation until it decides; return the sections of the page."""
    from focus_eval.lab.simulation import tried_files, with_fresh_seed

    # Each content of the sampler's file has its own folder and random seed, so the file cannot be tuned to the seed.
    state = "".join(f"-{digest[:8]}" for digest in tried_files(config))
    simulation = folder / f"simulation{state}"
    config = with_fresh_seed(config, simulation)
    print_infeasible(config)
    config, frame, share = _until_decided(config, simulation, looks, deadline, margin)
    # Keep the frontier apart, since the simulation's rows are read again after every look.
    frontier = _frontier_frame(config, folder / f"frontier{state}", looks[0], deadline)
    sections = simulation_sections(config, frame, frontier, share=share, margin=margin)
    repeat = f"Videos of seed {config.seed}; --seed {config.seed} repeats this verdict."
    notes = [repeat]
    if n_left_out := frame.attrs.get("n_left_out"):
        questions = counted(n_left_out, "question")
        notes.insert(0, f"{questions} left out: the time ended before every sampler had them.")
    for note in notes:
        print_folded(note)
    sections[0][1].extend(notes)
    return sections + _details(config, simulation, frame)


def _named(sampler: str, other_samplers: list[str]) -> list[str]:
    """The rivals at their own cost: `other_samplers` or focus; also uniform and random if `sampler` never pulls."""
    from focus_eval.lab.subprocess_sampler import make_apart

    new = make_apart(sampler)
    rivals_kept = [
        rival for rival in other_samplers or (["focus"] if new.needs_encoder else []) if make_apart(rival) != new
    ]
    blind = (
        [] if new.needs_encoder else [name for name in ("uniform", "random") if name not in (*rivals_kept, new.name)]
    )
    return [*rivals_kept, *blind]


def _until_decided(
    config: SimulationConfig, out: Path, looks: Sequence[int], deadline: Deadline, margin: float
) -> tuple[SimulationConfig, pd.DataFrame, float]:
    """Run videos until every comparison is decided, all looks are done, or the time is up.

    The controls' options are set once, at the new sampler's mean cost over the videos of the first look.

    Returns:
        The configuration that ran, its rows, and the share of the 5 % error level that the last look may use.
    """
    n_first = _run_in_time(config, out, looks[0], partial(deadline.seconds_left, _SAMPLERS_SHARE))
    controls = _controls(config, _frame(_first_videos(config, n_first), out))
    config = config.model_copy(update={"samplers": [*config.samplers, *controls]})
    if len(config.samplers) < 2:
        raise typer.BadParameter("name a sampler to compare it with", param_hint="OTHERS")
    n_run = _run_in_time(config, out, n_first, partial(deadline.seconds_left, _LOOKS_SHARE))
    if n_run < looks[0]:
        print_folded(
            f"--minutes {deadline.minutes:g} allow {n_run} of {looks[0]} videos: the verdict is on these alone."
        )
        # The time ran out before the first look's videos, so there is one look only: it may use the full 5 %.
        looks = [n_run]
    for n_videos, next_videos in zip(looks, [*looks[1:], None], strict=True):
        config = _first_videos(config, n_videos)
        run_with_progress(config, out, limit=n_videos if config.recorded else None)
        frame, share = _frame(config, out), n_videos / sum(looks)
        if next_videos is None:
            break
        decided = [item.is_decided for world in _worlds(config, frame) for item in world.compared(margin, share)]
        if all(decided):
            break
        # Earlier videos in this folder tell nothing about the pace; extrapolate from the time spent.
        expected_seconds = deadline.seconds_spent * (next_videos - n_videos) / n_videos
        progress = f"{n_videos} videos: {sum(decided)} of {len(decided)} comparisons decided."
        if expected_seconds > deadline.seconds_left(_LOOKS_SHARE):
            print_folded(f"{progress} {next_videos} videos would take longer than --minutes {deadline.minutes:g}.")
            break
        print_folded(f"{progress} {next_videos} videos next, about {expected_seconds / 60:.1f} minutes.")
    return config, frame, share


def _first_videos(config: SimulationConfig, n_videos: int) -> SimulationConfig:
    """The simulation, cut to the first `n_videos` videos of each world; unchanged if it replays recorded videos."""
    return config if config.recorded else config.model_copy(update={"videos": n_videos})


def _controls(config: SimulationConfig, frame: pd.DataFrame) -> list[SamplerEntry]:
    """The controls at the new sampler's cost at each K; [] if it encodes no frame."""
    from focus_eval.core.types import VideoInfo
    from focus_eval.lab.equal_cost import CONTROLS, controls_at

    new = config.series()[0][0]
    entries: list[SamplerEntry] = []
    for k in config.k:
        rows = frame[(frame["k"] == k) & (frame["label"] == _label(config, 0, k, frame)) & frame["error"].isna()]
        if rows["forward_equivalents"].sum() > 0:
            # A control scores one even grid per video, which all questions of the video share. So compare costs per
            # video.
            by_video = rows.drop_duplicates("video")
            cost = float(rows["forward_equivalents"].sum() / len(by_video))
            lengths = zip(by_video["n_frames"], by_video["duration_seconds"], strict=True)
            videos = [VideoInfo(int(n), fps=float(n / seconds)) for n, seconds in lengths]
            names = [name for name in CONTROLS if name != new.name]
            entries += controls_at(cost, videos, k=k, names=names)
    return entries


def _frame(config: SimulationConfig, out: Path) -> pd.DataFrame:
    """The rows of `config` in `out`, without rows of an earlier version of a file or of a longer run."""
    from focus_eval.bench.report.recall_layouts import lab_frame
    from focus_eval.bench.report.run import load_run
    from focus_eval.lab.simulation import selection_ids
    from focus_eval.lab.verdict import with_failures_as_0

    frame = with_failures_as_0(lab_frame(load_run(out), only=selection_ids(config)))
    if config.recorded:
        # If the time ran out, some questions lack the controls: compare on the questions that all series have.
        n_series = frame.groupby(["benchmark", "question_id"])["selection_id"].transform("nunique")
        is_common = n_series == n_series.max()
        common = frame[is_common]
        common.attrs["n_left_out"] = len(frame.loc[~is_common, ["benchmark", "question_id"]].drop_duplicates())
        return common
    return frame[frame["question_id"].str.rpartition("-")[2].astype(int) < config.videos]


def _label(config: SimulationConfig, place: int, k: int, frame: pd.DataFrame) -> str:
    """The label in `frame` of the sampler at `place` of the configuration."""
    from focus_eval.lab.simulation import selection_ids

    ids = selection_ids(config.model_copy(update={"samplers": [config.samplers[place]], "k": [k]}))
    return str(frame.loc[frame["selection_id"].isin(ids), "label"].iloc[0])


def _rivals(config: SimulationConfig, frame: pd.DataFrame) -> list[Rival]:
    """Each rival at each of its K, with the label of its rows in `frame`."""
    from focus_eval.lab.verdict import Rival

    rivals = []
    for place, entry in enumerate(config.samplers[1:], start=1):
        is_control = not isinstance(entry, str)
        for k in config.k if isinstance(entry, str) else entry.k:
            label = _label(config, place, k, frame)
            rivals.append(Rival(k, f"{label.split()[0]} at equal cost" if is_control else label, label))
    return sorted(rivals, key=lambda rival: rival.k)


@dataclass(frozen=True)
class _WorldRivals:
    """The rows of one world, the new sampler's label in them and its rivals."""

    name: str
    frame: pd.DataFrame
    new: str
    rivals: list[Rival]

    def compared(self, margin: float, share: float) -> list[RivalComparison]:
        """Return the comparison with each rival; `margin` is in points, `share` as in `simulation_sections`."""
        from focus_eval.lab.verdict import compare_with_rivals

        return compare_with_rivals(self.frame, self.new, self.rivals, margin=margin, share=share)


def _worlds(config: SimulationConfig, frame: pd.DataFrame) -> list[_WorldRivals]:
    """The rows and rivals of each world."""
    from focus_eval.lab.simulation import trace_sources

    parts = {source.name: frame[frame["benchmark"] == source.name] for source in trace_sources(config)}
    return [
        _WorldRivals(name, part, _label(config, 0, config.k[0], part), _rivals(config, part))
        for name, part in parts.items()
    ]


def simulation_sections(
    config: SimulationConfig, frame: pd.DataFrame, frontier: pd.DataFrame, *, share: float, margin: float
) -> list[Section]:
    """Return the page's sections: verdicts, frontier, and timelines of questions won and lost against the first rival.

    Args:
        frame, frontier: the rows of `config`, and the rows of samplers and controls at several budgets.
        share: share of the 5 % error level that this look may use.
    """
    from focus_eval.bench.report.figures import page_svg
    from focus_eval.lab.overview import draw_frontier, recall_overview
    from focus_eval.lab.verdict import (
        by_length,
        differing_worlds,
        verdict_sentence,
        verdict_table,
        whole_verdict,
        world_record,
    )

    new = config.series()[0][0]
    notes = _scripted_notes(new)
    for note in notes:
        print_folded(note)
    sections: list[Section] = []
    worlds = _worlds(config, frame)
    compared_by_world = {world.name: world.compared(margin, share) for world in worlds}
    first_sentence = whole_verdict(compared_by_world, worlds[0].new, margin)
    print_folded(first_sentence)
    notes = [first_sentence, *notes]
    for world in worlds:
        compared = compared_by_world[world.name]
        lengths = by_length(compared, world.frame, world.new, share=share)
        table = verdict_table(compared, world.frame, world.new, lengths, margin=margin, share=share)
        place = f"on {world.name}" if config.recorded else f"in the world {world.name!r}"
        unit = "questions" if config.recorded else "videos"
        title = f"Verdict {place}, {world.frame['question_id'].nunique()} {unit}"
        print_folded(f"{title}:")
        # The console shows fewer figures; differences by length are on the page.
        rows = tuple(replace(row, figures=row.figures[:3]) for row in table.rows)
        print_table(replace(table, columns=table.columns[:3], rows=rows))
        sentences = [
            verdict_sentence(item, world.frame, world.new, by_length_rows, margin=margin)
            for item, by_length_rows in zip(compared, lengths, strict=True)
        ]
        sentences += [] if config.recorded else filter(None, [world_record(world.name)])
        for sentence in sentences:
            print_folded(sentence)
        sections.append((title, [*notes, *sentences, table]))
        notes = []
    if differing := differing_worlds(compared_by_world, new.name):
        for sentence in differing:
            print_folded(sentence)
        sections.append(("Not in every world", [*differing]))
    picture = page_svg(draw_frontier(frontier), "Evidence recall against forward equivalents")
    # Put the picture between the first verdict and its table, so that the page begins with these three.
    heading, items = sections[0]
    sections[0] = (heading, [*items[:-1], picture, items[-1]])
    sections.append(("Recall and cost of every sampler", [recall_overview(frame)]))
    return sections


def _scripted_notes(sampler: FrameSampler) -> list[str]:
    """A note if a scripted model replied to the sampler: the verdict depends on its accuracy."""
    from focus_eval.lab.simulation import scripted_llm

    scripted = scripted_llm(sampler)
    if scripted is None:
        return []
    return [
        f"{sampler.name} asked a scripted model that reads the annotation ({scripted.revision}), not a language model: "
        "the verdict holds for a model that is right so often."
    ]


def _details(config: SimulationConfig, out: Path, frame: pd.DataFrame) -> list[Section]:
    """The sections on pulls off a recorded grid and on timelines, as far as they apply."""
    from focus_eval.bench.report.run import load_run
    from focus_eval.lab.overview import off_grid_lines

    sections: list[Section] = []
    off_grid = off_grid_lines(load_run(out))
    for line in off_grid:
        print_folded(line)
    if off_grid:
        sections.append(("Pulls off the recorded grid", list(off_grid)))
    return sections + _timelines(frame, config)


def _frontier_frame(config: SimulationConfig, out: Path, most_videos: int, deadline: Deadline) -> pd.DataFrame:
    """Rows of the samplers, and of the controls at several budgets, on the first videos, as many as time allows."""
    from focus_eval.lab.simulation import SamplerEntry

    names = dict.fromkeys(entry.sampler for entry in config.samplers if not isinstance(entry, str))
    budgets = [SamplerEntry(sampler=name, budgets=True) for name in names]
    changed = {"samplers": [*config.samplers, *budgets], "budgets": _FRONTIER_PERCENT}
    n_most = most_videos if config.recorded else min(config.videos, most_videos)
    frontier_config = _first_videos(config.model_copy(update=changed), n_most)
    n_videos = _run_in_time(frontier_config, out, n_most, partial(deadline.seconds_left, _FRONTIER_SHARE))
    return _frame(_first_videos(frontier_config, n_videos), out).assign(error=None)


def _timelines(frame: pd.DataFrame, config: SimulationConfig) -> list[Section]:
    """A section of timelines for questions that the new sampler wins, and one for those it loses."""
    from focus_eval.bench.report.figures import draw_timelines, page_svg
    from focus_eval.lab.simulation import select_on, trace_sources
    from focus_eval.lab.verdict import telling_questions

    source, k = trace_sources(config)[0], config.k[0]
    frame = frame[frame["benchmark"] == source.name]
    series = [sampler for sampler, at in config.series() if at == k]
    new, first = _label(config, 0, k, frame), _rivals(config, frame)[0]
    sections: list[Section] = []
    for word, questions in zip(("wins", "loses"), telling_questions(frame, new, first.label, k), strict=True):
        pictures: list[str | Table] = []
        for question in questions:
            rows = [select_on(source, config, drawn, k, source.number(question)) for drawn in series]
            successful = [row for row in rows if row.error is None]
            pictures.append(page_svg(draw_timelines(successful), f"What each sampler chose for {question}"))
        sections.append((f"Where {new} {word} against {first.name}, K = {k}", pictures or ["No question."]))
    return sections
