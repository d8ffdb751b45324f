"""Finds an encoder's weights and checks them; says how to download what is missing.

Looks in the model hub's cache on this machine, or in a folder. Never downloads, reads safetensors only, never
runs code that came with a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from focus_eval.core.errors import EncoderError, InvalidInput, MissingWeights, unknown_name
from focus_eval.encoders.registry import ENCODERS
from focus_eval.rows.records import replace_file

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Layout:
    """What a checkpoint's files are called.

    Args:
        config: states the architecture.
        weights: the safetensors, where they are not in shards.
        has_tokenizer: whether a tokenizer must lie beside them.
    """

    config: str
    weights: str
    has_tokenizer: bool = True

    @classmethod
    def of(cls, model_type: str | tuple[str, ...]) -> Layout:
        """Return the layout of a kind of model."""
        return OPEN_CLIP if model_type == "open_clip" else TRANSFORMERS


TRANSFORMERS = Layout("config.json", WEIGHTS)
OPEN_CLIP = Layout("open_clip_config.json", "open_clip_model.safetensors", has_tokenizer=False)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A published set of weights.

    A revision is pinned where it is a commit. Hashes that could not be verified against the hub were taken from public
    code that pins the same repository; each `note` says where that is so.

    Args:
        name: short name, as in `checkpoint=`; the key in an encoder's `checkpoints`, whose entry has the rest.
        repository: on the model hub.
        revision: commit, or reference, that holds safetensors.
        gigabytes: size of the weights; None where it is not known here.
        model_type: what its `config.json` may state; the encoder's.
        encoder: registered name of the encoder that reads it.
        note: what to know about it.
    """

    name: str
    repository: str
    revision: str
    gigabytes: float | None
    model_type: str | tuple[str, ...]
    encoder: str
    note: str = ""

    @property
    def fetch_command(self) -> str:
        """The command that downloads it into the hub's cache."""
        is_open_clip = Layout.of(self.model_type) is OPEN_CLIP
        weights = OPEN_CLIP.weights if is_open_clip else "model*.safetensors"
        patterns = ("*.json", "*.txt", "*.model", weights)
        wanted = " ".join(f'--include "{pattern}"' for pattern in patterns)
        return f"hf download {self.repository} --revision {self.revision} {wanted}"

    @property
    def is_pinned(self) -> bool:
        """Whether `revision` is a commit, so that fetching always gives the same weights."""
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def size(self) -> str:
        """Size of the weights as text."""
        return "size unknown" if self.gigabytes is None else f"{self.gigabytes:.2f} GB"


@cache
def known_checkpoints() -> dict[str, Checkpoint]:
    """Return the published checkpoints by short name, as our encoders state them; imports none of them."""
    stated = (
        Checkpoint(name=name, encoder=encoder, model_type=ENCODERS.fact(encoder, "model_type"), **facts)
        for encoder, plugin in ENCODERS.plugins.items()
        for name, facts in plugin.facts.get("checkpoints", {}).items()
    )
    return {checkpoint.name: checkpoint for checkpoint in stated}


SHARDS = "model.safetensors.index.json"
# What of a local folder can change a number: weights, rules of images and text, templates.
_HASHED = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model")
# Files from this size on are hashed once; the hash is kept under the file's size and time of change.
_LARGE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Located:
    """A checkpoint on this machine.

    Args:
        folder: holds the configuration and the weights.
        identity: what is loaded, exactly: "repository@commit", or "folder-name@sha256:..." for a local folder.
        layout: what its files are called.
    """

    folder: Path
    identity: str
    layout: Layout = TRANSFORMERS

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, one or several shards."""
        return weight_files(self.folder, self.layout)

    @property
    def config(self) -> Path:
        """The file that states the architecture."""
        return self.folder / self.layout.config


def locate(checkpoint: str, *, revision: str | None = None, model_type: str | tuple[str, ...]) -> Located:
    """Return where `checkpoint` is: a known name, a repository of the hub, or a local folder.

    Args:
        revision: commit, tag or branch of a repository; None: the known one, else "main". A folder has none.
        model_type: architecture the scorer needs, or several that it reads.

    Raises:
        MissingWeights: not on this machine; the line says which, how large, how to fetch it and where to put it.
        EncoderError: another architecture, no safetensors, or a damaged file.
    """
    path, layout = Path(checkpoint).expanduser(), Layout.of(model_type)
    if path.is_dir():
        _check(path, str(path), model_type)
        return Located(folder=path, identity=_identity(checkpoint, path), layout=layout)
    known = known_checkpoint(checkpoint)
    repository = known.repository if known else checkpoint
    wanted = revision or (known.revision if known else "main")
    folder = cached_folder(repository, wanted)
    if folder is None or not (folder / layout.config).exists() or not weight_files(folder, layout):
        raise MissingWeights(_missing_line(checkpoint, known, repository, wanted, folder))
    _check(folder, f"{repository}@{wanted}", model_type)
    return Located(folder=folder, identity=_identity(repository, folder), layout=layout)


def is_path(name: str) -> bool:
    """Whether `name` can only be a folder: the hub's names are OWNER/NAME."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def cached_folder(repository: str, revision: str) -> Path | None:
    """Return the snapshot of `repository` at `revision` in the hub's cache, None where there is none; no network.

    A snapshot of which only the files named in `fetch_command` were fetched is one: the hub's own client would call
    it incomplete.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        configs = [
            try_to_load_from_cache(repository, kind.config, revision=revision) for kind in (TRANSFORMERS, OPEN_CLIP)
        ]
    except HFValidationError:
        return None
    return next((Path(config).parent for config in configs if isinstance(config, str)), None)


def cache_place() -> str:
    """Return the folder of the hub's cache as a message names it, "~" for the user's own."""
    from huggingface_hub.constants import HF_HUB_CACHE

    home = str(Path.home())
    return f"~{HF_HUB_CACHE.removeprefix(home)}" if HF_HUB_CACHE.startswith(f"{home}/") else HF_HUB_CACHE


def weight_files(folder: Path, layout: Layout = TRANSFORMERS) -> list[Path]:
    """Return the safetensors files of a checkpoint's folder that are all there, [] where they are not.

    Raises:
        EncoderError: an index of shards that cannot be read.
    """
    if (folder / layout.weights).exists():
        return [folder / layout.weights]
    if layout is not TRANSFORMERS or not (folder / SHARDS).exists():
        return []
    try:
        names = sorted(set(json.loads((folder / SHARDS).read_text())["weight_map"].values()))
    except (ValueError, KeyError) as error:
        raise EncoderError(f"{folder / SHARDS}: not an index of shards ({error}); download it again") from error
    files = [folder / name for name in names]
    return files if all(file.exists() for file in files) else []


def check_readable(file: Path) -> None:
    """Read the header of a safetensors file and compare it with the file's size; the weights are not read.

    Raises:
        EncoderError: the file is cut off or no safetensors file; names it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy"):
            pass
    except (SafetensorError, OSError) as error:
        size = file.stat().st_size
        raise EncoderError(
            f"{file}: damaged, or not a safetensors file ({size} bytes: {error}); delete it and download it again"
        ) from error


def load_weights(model_class: Any, folder: Path, *, config: Any, where: str) -> Any:
    """Return a transformers model with every weight from the safetensors in `folder`, in fp32.

    Raises:
        EncoderError: weights missing, of another shape, or damaged; says how many, and the first.
    """
    import torch
    from safetensors import SafetensorError
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # reported, and refused below in one line
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise EncoderError(f"{where}: damaged safetensors ({error}); delete the file and download it again") from error
    finally:
        if shows_progress:
            logging.enable_progress_bar()
    for kind, text in (("missing_keys", "has no"), ("mismatched_keys", "has another shape of")):
        names = sorted(str(item if isinstance(item, str) else item[0]) for item in report.get(kind) or ())
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise EncoderError(f"{where} {text} {names[0]}{more}: weights of another model; choose another checkpoint")
    return model


def _check(folder: Path, where: str, model_type: str | tuple[str, ...]) -> None:
    layout = Layout.of(model_type)
    try:
        config = json.loads((folder / layout.config).read_text())
    except (OSError, ValueError) as error:
        raise EncoderError(f"{where}: no readable {layout.config} ({error}); download it again") from error
    found = config.get("model_type") if isinstance(config, dict) else None
    if layout is OPEN_CLIP and isinstance(config, dict) and "vision_cfg" in config.get("model_cfg", {}):
        found = "open_clip"  # which states no type of its own
    readable = (model_type,) if isinstance(model_type, str) else model_type
    if found not in readable:
        needed = " or ".join(repr(name) for name in readable)
        raise EncoderError(f"{where}: holds a {found!r} model, this scorer needs {needed}")
    if damaged := damaged_blobs(folder):
        raise EncoderError(damaged[0])
    files = weight_files(folder, layout)
    if not files:
        raise MissingWeights(
            f"{where}: no complete {layout.weights}; other formats can run code when read and are refused"
        )
    for file in files:
        check_readable(file)


def _missing_line(
    checkpoint: str, known: Checkpoint | None, repository: str, revision: str, folder: Path | None
) -> str:
    if not known and is_path(checkpoint):
        return f"checkpoint {checkpoint!r}: no such folder; correct the path"
    if not known and "/" not in checkpoint:
        return f"{unknown_name('checkpoint', checkpoint, known_checkpoints())}; a repository of the hub is OWNER/NAME"
    if known:
        size, fetch = known.size, known.fetch_command
        if revision != known.revision:
            fetch = fetch.replace(known.revision, revision)
    else:
        size, fetch = "unknown size", f"hf download {repository} --revision {revision}"
    state = "has no safetensors in" if folder is not None else "is not in"
    return (
        f"checkpoint {checkpoint!r} ({size}) {state} the hub's cache {cache_place()}: run `{fetch}`, or give its "
        "folder as checkpoint=FOLDER"
    )


def known_checkpoint(name: str) -> Checkpoint | None:
    """Return the published checkpoint of that short name or repository; None where it is neither."""
    known = known_checkpoints()
    return known.get(name) or next((item for item in known.values() if item.repository == name), None)


def weights_folder(pretrained: str, revision: str = "main") -> Path | None:
    """Return the folder of a checkpoint: itself, or its snapshot in the hub's cache; None where there is none."""
    folder = Path(pretrained).expanduser()
    return folder if folder.is_dir() else cached_folder(pretrained, revision)


def weights_identity(pretrained: str, revision: str | None = None) -> str:
    """Return what exactly is loaded: "repository@commit", or "folder@sha256:.." over the files of a local folder.

    Where it is not on this machine: "repository@revision, not here", and where a file of the hub's cache is not what
    its name says: "repository@commit, damaged". The checks before a run refuse both.

    Args:
        pretrained: a known name, a repository of the hub, or a local folder; "" for none.
        revision: commit, tag or branch of a repository; None: the known one, else "main".
    """
    if not pretrained:
        return ""
    known = known_checkpoint(pretrained)
    repository = known.repository if known else pretrained
    wanted = revision or (known.revision if known else "main")
    folder = weights_folder(repository, wanted)
    return f"{repository}@{wanted}, not here" if folder is None else _identity(repository, folder)


def _identity(repository: str, folder: Path) -> str:
    if Path(repository).expanduser().is_dir():
        # By content and without the path: two machines then give one checkpoint one identity.
        return f"{folder.resolve().name}@{_folder_hash(folder)}"
    # In the hub's cache a snapshot's folder is named by its commit.
    return f"{repository}@{folder.name}" + (", damaged" if damaged_blobs(folder) else "")


def damaged_blobs(folder: Path) -> list[str]:
    """Return a line for each file of a snapshot in the hub's cache whose content is not the one it is named by.

    The cache names a large file by its SHA-256 and another by its hash in git. A file is hashed once while its size and
    time of change stay the same; one that does not lie in such a cache has no name to compare it with.
    """
    lines = []
    for file in sorted(item for item in folder.iterdir() if item.is_file() and item.suffix in _HASHED):
        blob = file.resolve()
        if blob.parent.name != "blobs" or not _BLOB.fullmatch(blob.name):
            continue
        stat = blob.stat()
        found = (_file_hash if len(blob.name) == 64 else _git_hash)(blob, stat.st_size, stat.st_mtime_ns)
        if found != blob.name:
            lines.append(f"{file}: damaged, its content is not that of its hash; delete {blob} and download it again")
    return lines


@cache
def _git_hash(file: Path, size: int, changed_ns: int) -> str:
    return hashlib.sha1(b"blob %d\0" % size + file.read_bytes()).hexdigest()


def _folder_hash(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.suffix in _HASHED)
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{file.name}\0{_file_hash(file, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return f"sha256:{digest.hexdigest()[:16]}"


@cache
def _file_hash(file: Path, size: int, changed_ns: int) -> str:
    if size < _LARGE_BYTES:
        return _sha256(file)
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "focus-eval" / "hashes"
    key = hashlib.sha256(f"{file.resolve()}\0{size}\0{changed_ns}".encode()).hexdigest()[:32]
    if (home / key).is_file():
        return (home / key).read_text(encoding="utf-8")
    print(f"hashing {file} ({size / 1e9:.1f} GB), once", file=sys.stderr, flush=True)
    found = _sha256(file)
    with suppress(OSError, InvalidInput):  # a cache: where nothing can be written it is hashed in every process
        home.mkdir(parents=True, exist_ok=True)
        with replace_file(home / key) as part:
            part.write_text(found, encoding="utf-8")
    return found


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
