"""`focus-eval doctor`: show what this machine has and what is missing."""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from focus_eval.commands.console import print_folded, table_console
from focus_eval.core.errors import FocusEvalError, MissingWeights
from focus_eval.core.extras import WITHOUT_DEPENDENCIES, install_command
from focus_eval.rows.identity import git_revision, versions
from focus_eval.video import READERS

GIGABYTE = 1e9


def doctor(
    store: Annotated[Path | None, typer.Option(help="Also show the size of this store.")] = None,
    videos: Annotated[Path | None, typer.Option(help="Also say how sure the files of this folder are.")] = None,
    run: Annotated[
        Path | None, typer.Option(help="Also say what the scan encoders of this run cost, and whether they tell.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show versions, devices, decoders, extras and weights.

    Also shows the disk space of the folders that matter. Downloads nothing.
    """
    facts = {
        "versions": {**versions(), **({"commit": commit} if (commit := git_revision()) else {})},
        "devices": devices(),
        "decoders": decoders(),
        "extras": extras(),
        "checkpoints": checkpoints(),
        "folders": folders(store),
        **({"videos": kind_of_check(videos)} if videos is not None else {}),
        **({"scan encoders": scan_encoders(run)} if run is not None else {}),
    }
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _print_tables(facts)


def devices() -> dict[str, str]:
    """Return the devices an encoder can run on by torch's name, with what they are."""
    from focus_eval.matrix.machine import host_gigabytes
    from focus_eval.pipeline.timing import cpu_name

    found = {"cpu": f"{cpu_name()}, {os.cpu_count()} cores, {host_gigabytes() or 0:.0f} GB"}
    if find_spec("torch") is None:
        return {**found, "cuda": "torch is not installed"}
    import torch

    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        found[f"cuda:{index}"] = f"{card.name}, {card.total_memory / GIGABYTE:.0f} GB"
    return found if len(found) > 1 else {**found, "cuda": f"none visible to torch {torch.__version__}"}


def decoders() -> dict[str, str]:
    """Return each package that decodes videos with its version, or what to install."""
    found = {}
    for name in (name for name in READERS.names() if not READERS.fact(name, "needs_gpu", False)):
        package, extra = READERS.fact(name, "package", "") or name, READERS.fact(name, "extra", "")
        missing = f"missing: {install_command(extra)}" if extra else "missing"
        found[name] = _version(package) or _version(f"eva-{package}") or missing
    if found.get("pyav", "missing") != "missing":
        import av

        codecs = [codec for codec in ("h264", "hevc", "av1", "vp9", "vp8", "mpeg4") if codec in av.codecs_available]
        found["pyav"] += f" (libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))}: {', '.join(codecs)})"
    return found


def extras() -> dict[str, str]:
    """Return each extra of the package with "installed", or the packages it lacks."""
    from packaging.requirements import Requirement

    try:
        lines = [Requirement(line) for line in requires("focus-eval") or ()]
    except PackageNotFoundError:
        return {"focus-eval": "not installed as a package"}
    names = sorted({extra for line in lines for extra in _extras_in(str(line.marker or ""))})
    found = {}
    for extra in names:
        missing = sorted(set(_lacking(extra, lines)))
        lacks = f"lacks {', '.join(missing)}: {install_command(extra)}"
        found[extra] = "installed" if not missing else lacks
    return found


def checkpoints() -> dict[str, dict[str, str]]:
    """Return each known checkpoint with its encoder, its size and where it is, or how to fetch it."""
    from focus_eval.encoders.weights import known_checkpoints, locate

    found = {}
    for known in known_checkpoints().values():
        row = {"encoder": known.encoder, "size": known.size, "revision": known.revision}
        row["pinned"] = "yes" if known.is_pinned else "unpinned"
        if find_spec("huggingface_hub") is None or find_spec("safetensors") is None:
            row["state"] = f"needs {install_command('encoders')}"
        else:
            try:
                row["state"] = f"present: {locate(known.name, model_type=known.model_type).folder}"
            except MissingWeights:
                row["state"] = f"missing: {known.fetch_command}"
            except FocusEvalError as error:
                row["state"] = str(error)
        found[known.name] = {**row, "note": known.note}
    return found


def folders(store: Path | None) -> dict[str, str]:
    """Return the folders that matter with the space they take and the space left."""
    found = {"working folder": _free(Path.cwd())}
    if find_spec("huggingface_hub") is not None:
        from huggingface_hub import constants

        found["hub cache"] = f"{constants.HF_HUB_CACHE}, {_free(Path(constants.HF_HUB_CACHE))}"
    if store is not None:
        # SQLite keeps what is not yet merged in files beside the store
        files = [file for file in (store, *(Path(f"{store}{end}") for end in ("-wal", "-shm"))) if file.is_file()]
        size = sum(file.stat().st_size for file in files) / GIGABYTE
        found["store"] = f"{store}, {f'{size:.3f} GB' if files else 'does not exist yet'}, {_free(store)}"
    return found


def kind_of_check(folder: Path) -> dict[str, str]:
    """Return how far damage in the videos of a folder would be noticed, by the folder that they lie in."""
    from focus_eval.video.damage_checks import count_checked
    from focus_eval.video.manifest_writer import video_files

    by_folder: dict[Path, list[Path]] = {}
    for path in video_files(folder):
        by_folder.setdefault(path.parent, []).append(path)
    return {str(parent): count_checked(paths) for parent, paths in by_folder.items()}


def scan_encoders(folder: Path) -> dict[str, str]:
    """Return what a frame of each scan encoder of a run costs, and how far it agrees with the main encoder."""
    from focus_eval.report.cost import unit_costs
    from focus_eval.report.measures import scan_correlations
    from focus_eval.report.run import load_run

    run = load_run(folder)
    costs = {
        named: unit_costs(row.gmacs, relative_cost=row.options.get("relative_cost"))[1]
        for row in run.variants
        if (named := row.options.get("scan_encoder") or row.scan_encoder)
    }
    known = scan_correlations(run.selection_frame)
    return {
        named: f"a frame costs {cost:.3g} of a forward; correlation with the main encoder "
        + (f"{known[named]:.2f}" if named in known else "not measured")
        for named, cost in costs.items()
    }


def _print_tables(facts: dict[str, Any]) -> None:
    from rich.text import Text

    console = table_console()
    for title, rows in facts.items():
        console.print(Text(title, style="bold"))
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            if isinstance(value, dict):
                _print_checkpoint(name, value)
            else:
                # A long name, such as a folder, leaves no room beside it.
                print_folded(f" {name:<{width}}  {value}", min(width + 3, console.width // 3))
        console.print()


def _print_checkpoint(name: str, about: dict[str, str]) -> None:
    note = f" ({about['note']})" if about["note"] else ""
    pinned = "" if about["pinned"] == "yes" else " (unpinned)"
    print_folded(f" {name}: {about['encoder']}, {about['size']}, {about['revision'][:12]}{pinned}{note}", 3)
    print_folded(f"   {about['state']}", 5)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _extras_in(marker: str) -> list[str]:
    """Return ["lmms"] of `extra == "lmms" and sys_platform == "linux"`."""
    parts = marker.replace("'", '"').split("extra == ")[1:]
    return [part.split('"')[1] for part in parts]


def _lacking(extra: str, lines: list[Any]) -> list[str]:
    """Return the packages that `extra`, and the extras it names, ask for and that are not installed."""
    beside = WITHOUT_DEPENDENCIES.get(extra, "")
    missing = [beside] if beside and not _version(beside.partition("==")[0]) else []
    for line in lines:
        if extra not in _extras_in(str(line.marker or "")) or not line.marker.evaluate({"extra": extra}):
            continue
        if line.name == "focus-eval":
            missing += [package for other in line.extras for package in _lacking(other, lines)]
            continue
        installed = _version(line.name)
        if not installed:
            missing.append(line.name)
        elif not line.specifier.contains(installed, prereleases=True):
            missing.append(f"{line.name}{line.specifier} (has {installed})")
    return missing


def _free(folder: Path) -> str:
    """Return the space left on the disk of `folder`, or of its nearest parent that exists."""
    existing = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    return f"{shutil.disk_usage(existing).free / GIGABYTE:.0f} GB free"
