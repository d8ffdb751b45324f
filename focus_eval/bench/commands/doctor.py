"""`focus-eval doctor`: show what this machine has and what is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from focus_eval.core.errors import FocusEvalError, MissingWeights
from focus_eval.core.extras import install_command
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.commands.console import print_folded, table_console
from focus_eval.keyframes.rows.identity import git_revision, versions
from focus_eval.keyframes.video import READERS
from focus_eval.keyframes.video.colour import TRANSFERS, VERSION

GIGABYTE = 1e9
_MAPPED = (
    f"HDR, mapped to SDR by BT.2390 (version {VERSION}) in select, ask and pictures on disk; in tables as stored, "
    "unless the matrix has pixels: display"
)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show versions, devices, decoders and weights.

    Also shows free disk space. Downloads nothing.
    """
    facts: dict[str, Mapping[str, object]] = {
        "versions": {**versions(), **({"commit": commit} if (commit := git_revision()) else {})},
        "devices": devices(),
        "decoders": decoders(),
        "colours": dict.fromkeys(TRANSFERS.values(), _MAPPED),
        "default encoder": selected_encoder(),
        "checkpoints": checkpoints(),
        "folders": folders(),
    }
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        _print_tables(facts)


def devices() -> dict[str, str]:
    """Return a description of each device that an encoder can run on, by torch's name of the device."""
    from focus_eval.bench.matrix.machine import host_gigabytes
    from focus_eval.keyframes.pipeline.timing import cpu_name

    name_by_device = {"cpu": f"{cpu_name()}, {n_cores()} cores, {host_gigabytes() or 0:.0f} GB"}
    if find_spec("torch") is None:
        return {**name_by_device, "cuda": "torch is not installed"}
    import torch

    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        name_by_device[f"cuda:{index}"] = f"{card.name}, {card.total_memory / GIGABYTE:.0f} GB"
    return (
        name_by_device
        if len(name_by_device) > 1
        else {**name_by_device, "cuda": f"none visible to torch {torch.__version__}"}
    )


def decoders() -> dict[str, str]:
    """Return the version of each package that decodes videos, or the command that installs it."""
    version_by_package = {}
    for name in READERS.names():
        package, extra = READERS.fact(name, "package", "") or name, READERS.fact(name, "extra", "")
        missing = f"missing: {install_command(extra)}" if extra else "missing"
        version_by_package[name] = _version(package) or _version(f"eva-{package}") or missing
    if version_by_package.get("pyav", "missing") != "missing":
        import av

        codecs = [codec for codec in ("h264", "hevc", "av1", "vp9", "vp8", "mpeg4") if codec in av.codecs_available]
        # Show the versions inside PyAV: lmms-eval limits PyAV, so a full install may have an older one than a light
        # install.
        libavcodec = ".".join(map(str, av.library_versions["libavcodec"]))
        ffmpeg = getattr(av, "ffmpeg_version_info", "of unknown version")
        version_by_package["pyav"] += f" with FFmpeg {ffmpeg} (libavcodec {libavcodec}: {', '.join(codecs)})"
    return version_by_package


def selected_encoder() -> dict[str, str]:
    """Return the encoder that `select` uses by default, and how to get a more capable one."""
    from focus_eval.keyframes.encoders.default import FALLBACK, better_encoder_hint, default_encoder

    try:
        name = default_encoder(lambda checkpoint: False)
    except FocusEvalError as error:
        return {"select": str(error)}
    return {"select": name, **({"knows more": better_encoder_hint()} if name == FALLBACK else {})}


def checkpoints() -> dict[str, dict[str, str]]:
    """Return encoder, size and location of each known checkpoint, or its download command, by name."""
    from focus_eval.keyframes.encoders.weights import known_checkpoints, locate

    row_by_checkpoint = {}
    for checkpoint in known_checkpoints().values():
        row = {"encoder": checkpoint.encoder, "size": checkpoint.size, "revision": checkpoint.revision}
        row["pinned"] = "yes" if checkpoint.is_pinned else "unpinned"
        if find_spec("huggingface_hub") is None or find_spec("safetensors") is None:
            row["state"] = f"needs {install_command('encoders')}"
        else:
            try:
                row["state"] = f"present: {locate(checkpoint.name, model_type=checkpoint.model_type).folder}"
            except MissingWeights:
                row["state"] = f"missing: {checkpoint.fetch_command}"
            except FocusEvalError as error:
                row["state"] = str(error)
        row_by_checkpoint[checkpoint.name] = {**row, "note": checkpoint.note}
    return row_by_checkpoint


def folders() -> dict[str, str]:
    """Return used and free space of the folders of this machine that runs write to."""
    text_by_folder = {"working folder": _free(Path.cwd())}
    if find_spec("huggingface_hub") is not None:
        from huggingface_hub import constants

        text_by_folder["hub cache"] = f"{constants.HF_HUB_CACHE}, {_free(Path(constants.HF_HUB_CACHE))}"
    return text_by_folder


def _print_tables(facts: Mapping[str, Mapping[str, object]]) -> None:
    """Print each group of facts under its title, folded at the terminal's width."""
    from rich.text import Text

    console = table_console()
    for title, rows in facts.items():
        console.print(Text(title, style="bold"))
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            if isinstance(value, dict):
                note = f" ({value['note']})" if value["note"] else ""
                pinned = "" if value["pinned"] == "yes" else " (unpinned)"
                print_folded(f" {name}: {value['encoder']}, {value['size']}, {value['revision'][:12]}{pinned}{note}", 3)
                print_folded(f"   {value['state']}", 5)
            else:
                # Limit the indent, since a long name such as a folder leaves no room beside it.
                print_folded(f" {name:<{width}}  {value}", min(width + 3, console.width // 3))
        console.print()


def _version(package: str) -> str:
    """The version of the installed `package`; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _free(folder: Path) -> str:
    """The space left on the disk of `folder`, or of its nearest parent that exists."""
    existing = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    return f"{shutil.disk_usage(existing).free / GIGABYTE:.0f} GB free"
