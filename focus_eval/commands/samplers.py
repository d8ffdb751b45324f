"""`focus-eval samplers`: list the samplers with options and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.errors import InvalidInput

if TYPE_CHECKING:
    from focus_eval.samplers.base import FrameSampler
    from focus_eval.types import VideoInfo


def samplers(
    k: Annotated[int, typer.Option("-k", help="Keyframes of the example video.")] = 64,
    minutes: Annotated[float, typer.Option(help="Length of the example video, in minutes.")] = 60.0,
    fps: Annotated[float, typer.Option(help="Frame rate of the example video.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the samplers with their options and cost.

    The cost is the number of frames scored on an example video.
    """
    from focus_eval.samplers.registry import sampler_classes
    from focus_eval.types import VideoInfo

    if not (0 < minutes < float("inf") and 0 < fps < float("inf") and k > 0):
        raise InvalidInput(f"minutes, fps and k must be numbers above 0, got {minutes}, {fps} and {k}")
    video = VideoInfo(n_frames=max(1, int(minutes * 60 * fps)), fps=fps)
    rows = [sampler_row(kind, video, k) for kind in sampler_classes().values()]
    if as_json:
        import json

        print(json.dumps({"n_frames": video.n_frames, "fps": video.fps, "k": k, "samplers": rows}, indent=2))
    else:
        _print_list(rows, f"pulls of {minutes:g} min at {fps:g} fps, k = {k}")


def sampler_row(kind: type[FrameSampler], video: VideoInfo, k: int) -> dict[str, Any]:
    """Return name, source, version, needs, options with defaults and cost of one sampler, JSON values only."""
    sampler = kind()
    pulls = sampler.count_pulls(video, k=k)
    needs = "logits" if kind.needs_logits else "embeddings" if kind.needs_embeddings else "relevance"
    return {
        "name": kind.name,
        "source": kind.source,
        "version": kind.version,
        "needs": needs if kind.needs_encoder else "nothing",
        "options": sampler.options,
        "pulls": pulls,
        "frames_scored": pulls / video.n_frames,
    }


def _print_list(rows: list[dict[str, Any]], cost_title: str) -> None:
    from focus_eval.commands.tables import print_entries

    entries = []
    for row in rows:
        options = " ".join(f"{name}={_as_text(value)}" for name, value in row["options"].items())
        cost = f"{row['pulls']} ({100 * row['frames_scored']:.2f} %) {cost_title}; needs {row['needs']}"
        entries.append((row["name"], [row["source"], *([f"-o {options}"] if options else []), cost]))
    print_entries(entries)


def _as_text(value: Any) -> str:
    """Return `value` as it is written after `-o name=`."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
