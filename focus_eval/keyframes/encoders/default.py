"""Choose the encoder of a user who names none.

It is the first of `ORDER` whose weights lie on this machine. If there is none, one download is offered. If the user
does not accept it, the encoder is `offline`.

    encoder = default_encoder(may_download=lambda checkpoint: True)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from focus_eval.core.errors import EncoderError, MissingWeights
from focus_eval.core.extras import install_command
from focus_eval.keyframes.encoders.registry import ENCODERS
from focus_eval.keyframes.encoders.weights import Checkpoint, damaged_files, known_checkpoints, locate, weights_folder

FALLBACK = "offline"
ORDER = (
    "PE-Core-T-16-384",
    "MobileCLIP2-S2",
    "MobileCLIP2-S0",
    "siglip2-so400m-patch14-384",
    "clip-vit-base-patch32",
    "clip-vit-large-patch14",
    "siglip-so400m-patch14-384",
)
_MODULES_BY_EXTRA = {"encoders": ("torch", "transformers"), "open-clip": ("torch", "transformers", "open_clip")}
DOWNLOAD_VARIABLE = "FOCUS_EVAL_DOWNLOAD"


def is_download_allowed() -> bool:
    """Return True if the environment allows the download that is offered (`FOCUS_EVAL_DOWNLOAD=1`)."""
    return os.environ.get(DOWNLOAD_VARIABLE) == "1"


def default_encoder(may_download: Callable[[Checkpoint], bool]) -> str:
    """Return name and options of the encoder to use where none is named, e.g. `clip:checkpoint=clip-vit-base-patch32`.

    Args:
        may_download: asked once, about the offered checkpoint, if no weights of `ORDER` are here.

    Raises:
        EncoderError: weights that are here are damaged, or an allowed download failed.
    """
    checkpoints = [item for item in map(known_checkpoints().__getitem__, ORDER) if _is_installed(item.encoder)]
    for checkpoint in checkpoints:
        with suppress(MissingWeights):
            locate(checkpoint.name, model_type=checkpoint.model_type)
            return _with_checkpoint(checkpoint)
    offer = next((checkpoint for checkpoint in checkpoints if checkpoint.licence), None)
    if offer is None or not may_download(offer):
        return FALLBACK
    download(offer)
    return _with_checkpoint(offer)


def better_encoder_hint() -> str:
    """Return text that says how to get an encoder that knows more than everyday objects: which install or option."""
    if command := missing_install():
        return f"{command}, then select --yes"
    return f"select --yes or {DOWNLOAD_VARIABLE}=1 downloads one"


def missing_install() -> str:
    """Return the command that installs what a downloaded encoder needs; "" if it is installed."""
    is_installed = any(_is_installed(known_checkpoints()[name].encoder) for name in ORDER)
    return "" if is_installed else install_command("open-clip")


def offer_text(checkpoint: Checkpoint) -> str:
    """Return a sentence on the offered download: weights, size, licence and advantage."""
    return (
        f"{checkpoint.name} ({checkpoint.size}, {checkpoint.licence}), an encoder that knows more than everyday objects"
    )


def download(checkpoint: Checkpoint) -> None:
    """Download the files of `checkpoint` into the hub's cache and check them.

    Raises:
        EncoderError: no room, no connection, or a file of other content than its hash, which is deleted.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import HfHubHTTPError

    # The base class of HfHubHTTPError is an error of the HTTP library, and that library differs between releases.
    connection_errors = cast("tuple[type[Exception], ...]", (OSError, *HfHubHTTPError.__bases__))
    _check_space(checkpoint, Path(HF_HUB_CACHE))
    try:
        snapshot_download(
            checkpoint.repository, revision=checkpoint.revision, allow_patterns=list(checkpoint.file_patterns)
        )
    except connection_errors as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160].rstrip(". ")
        raise EncoderError(
            f"{checkpoint.name} was not downloaded ({reason}); try again, it continues, or --encoder {FALLBACK}"
        ) from error
    folder = weights_folder(checkpoint.repository, checkpoint.revision)
    for file in damaged_files(folder) if folder is not None else ():
        file.resolve().unlink()
        raise EncoderError(f"{file.name} of {checkpoint.name} came damaged and was deleted; download it again")
    locate(checkpoint.name, model_type=checkpoint.model_type)


def _check_space(checkpoint: Checkpoint, cache: Path) -> None:
    """Raise EncoderError if the disk of `cache` has less free space than `checkpoint` takes."""
    existing = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    free_gigabytes = shutil.disk_usage(existing).free / 1e9
    if free_gigabytes < (checkpoint.gigabytes or 0):
        raise EncoderError(
            f"{checkpoint.name} takes {checkpoint.size}, {cache} has {free_gigabytes:.2f} GB free: "
            f"make room, name another disk with HF_HOME, or --encoder {FALLBACK}"
        )


def _is_installed(encoder: str) -> bool:
    """True if the modules of the extra that `encoder` needs are installed; False without an extra."""
    modules = _MODULES_BY_EXTRA.get(ENCODERS.fact(encoder, "extra", ""), ())
    return bool(modules) and all(find_spec(module) is not None for module in modules)


def _with_checkpoint(checkpoint: Checkpoint) -> str:
    """The encoder of `checkpoint` with it as an option, e.g. `clip:checkpoint=clip-vit-base-patch32`."""
    return f"{checkpoint.encoder}:checkpoint={checkpoint.name}"
