"""Finds an encoder's weights on this machine and checks them; names the download command for missing ones.

Weights are searched in the model hub's cache or in a given folder. This module never downloads, reads safetensors only,
and never runs code that came with a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from focus_eval.core.errors import EncoderError, FocusEvalError, InvalidInput, MissingWeights, unknown_name
from focus_eval.core.files import replace_file
from focus_eval.core.resources import cache_folder
from focus_eval.keyframes.encoders.registry import ENCODERS, read_encoder

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

M = TypeVar("M", bound="PreTrainedModel")
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class CheckpointLayout:
    """File names of a checkpoint.

    Args:
        config: the file that states the architecture.
        weights: the safetensors file, if there is only one.
        has_tokenizer: True if a tokenizer must lie in the same folder.
    """

    config: str
    weights: str
    has_tokenizer: bool = True

    @classmethod
    def of(cls, model_type: str | tuple[str, ...]) -> CheckpointLayout:
        """Return the layout of checkpoints of that model type: open_clip's, else transformers'."""
        return OPEN_CLIP if model_type == "open_clip" else TRANSFORMERS


TRANSFORMERS = CheckpointLayout("config.json", WEIGHTS)
OPEN_CLIP = CheckpointLayout("open_clip_config.json", "open_clip_model.safetensors", has_tokenizer=False)
_COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")
_BLOB_PATTERN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A published set of weights.

    If `revision` is a commit, the weights are pinned. Commits that could not be verified against the hub were taken
    from public code that pins the same repository; `note` then says so.

    Args:
        name: short name, as in `checkpoint=`; it is the key in an encoder's `checkpoints`, whose entry has the other
            fields.
        repository: repository on the model hub.
        revision: commit, or other reference, at which the repository has safetensors.
        gigabytes: size of the weights; None if not known.
        model_type: allowed values of `model_type` in its `config.json`, as the encoder states them.
        encoder: registered name of the encoder that reads the checkpoint.
        gmacs: the encoder's `gmacs` with this checkpoint, for plans made before the weights are on this machine; {} if
            not stated.
        licence: SPDX name, with a remark if it is not the licence of the weights; required if a download is offered.
        note: a remark for the user.
    """

    name: str
    repository: str
    revision: str
    gigabytes: float | None
    model_type: str | tuple[str, ...]
    encoder: str
    gmacs: Mapping[str, float] = field(default_factory=dict, hash=False)
    licence: str = ""
    note: str = ""

    @property
    def file_patterns(self) -> tuple[str, ...]:
        """Patterns of the names of the repository's files that the encoder reads."""
        is_open_clip = CheckpointLayout.of(self.model_type) is OPEN_CLIP
        return "*.json", "*.txt", "*.model", OPEN_CLIP.weights if is_open_clip else "model*.safetensors"

    @property
    def fetch_command(self) -> str:
        """The command that downloads the checkpoint into the hub's cache."""
        includes = " ".join(f'--include "{pattern}"' for pattern in self.file_patterns)
        return f"hf download {self.repository} --revision {self.revision} {includes}"

    @property
    def is_pinned(self) -> bool:
        """True if `revision` is a commit, so that fetching always gives the same weights."""
        return _COMMIT_PATTERN.fullmatch(self.revision) is not None

    @property
    def size(self) -> str:
        """Size of the weights as text, e.g. "0.61 GB"; "size unknown" if not stated."""
        return "size unknown" if self.gigabytes is None else f"{self.gigabytes:.2f} GB"


@cache
def known_checkpoints() -> dict[str, Checkpoint]:
    """Return the published checkpoints by short name, read from the encoders' classes without importing them."""
    checkpoints = (
        Checkpoint(name=name, encoder=encoder, model_type=_model_type(encoder), **facts)
        for encoder, plugin in ENCODERS.plugins.items()
        for name, facts in plugin.facts.get("checkpoints", {}).items()
    )
    return {checkpoint.name: checkpoint for checkpoint in checkpoints}


def encoder_checkpoint(encoder: str, options: Mapping[str, object]) -> Located | None:
    """Return the checkpoint of an encoder with `options`, without importing the encoder; None if it has none.

    Raises:
        EncoderError: as `locate`.
    """
    model_type = _model_type(encoder)
    if not model_type:
        return None
    checkpoint, revision = options.get("checkpoint"), options.get("revision")
    name = str(checkpoint or ENCODERS.fact(encoder, "default_checkpoint", encoder))
    return locate(name, revision=str(revision) if revision else None, model_type=model_type)


def _model_type(encoder: str) -> str | tuple[str, ...]:
    """`Encoder.model_type` of a registered encoder; "" if it loads no checkpoint."""
    return ENCODERS.fact(encoder, "model_type", "")


def local_gmacs(encoder: str, options: Mapping[str, object]) -> dict[str, float]:
    """Return an encoder's 10^9 multiply-adds by part (`Encoder.gmacs`).

    If its weights are not on this machine, the encoder is not imported, and the figures stated with the published
    checkpoint are returned; {} if none are stated.
    """
    try:
        encoder_checkpoint(encoder, options)
        name, values = read_encoder(encoder, options)
        with ENCODERS.name_missing_extra(name):
            return dict(ENCODERS.load(name).gmacs_of(**values))
    except MissingWeights:
        default = ENCODERS.fact(encoder, "default_checkpoint", "")
        checkpoint = known_checkpoint(str(options.get("checkpoint") or default))
        return dict(checkpoint.gmacs) if checkpoint and checkpoint.encoder == encoder else {}
    except FocusEvalError:  # not raised here: preflight reports these errors
        return {}


SHARDS = "model.safetensors.index.json"
# Files of a local checkpoint that can change a result: weights, processor settings, templates.
_HASHED_SUFFIXES = (".safetensors", ".bin", ".json", ".jinja", ".txt", ".model")
# Hashes of files from this size on are cached by size and modification time.
_MIN_BYTES_TO_KEEP_HASH = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Located:
    """A checkpoint on this machine.

    Args:
        folder: holds the configuration and the weights.
        identity: exact name of the weights: "repository@commit", or "folder-name@sha256:..." for a local folder.
        layout: names of the checkpoint's files.
    """

    folder: Path
    identity: str
    layout: CheckpointLayout = TRANSFORMERS

    @property
    def weight_files(self) -> list[Path]:
        """The safetensors files, one or several shards; [] if any is missing."""
        return weight_files(self.folder, self.layout)

    @property
    def config(self) -> Path:
        """The file that states the architecture."""
        return self.folder / self.layout.config


def locate(checkpoint: str, *, revision: str | None = None, model_type: str | tuple[str, ...]) -> Located:
    """Return folder, identity and file layout of a checkpoint on this machine, after checking its files.

    Args:
        checkpoint: a known name, a repository of the hub, or a local folder.
        revision: commit, tag or branch of a repository; None: the one stated with a known name, else "main". Not used
            for a folder.
        model_type: architecture that the encoder reads, one or several.

    Raises:
        MissingWeights: the checkpoint is not on this machine; the message has the download command.
        EncoderError: another architecture, no safetensors, or a damaged file.
    """
    path, layout = Path(checkpoint).expanduser(), CheckpointLayout.of(model_type)
    if path.is_dir():
        _check(path, str(path), model_type)
        return Located(folder=path, identity=_identity(checkpoint, path), layout=layout)
    published = known_checkpoint(checkpoint)
    repository = published.repository if published else checkpoint
    wanted_revision = revision or (published.revision if published else "main")
    folder = cached_folder(repository, wanted_revision)
    if folder is None or not (folder / layout.config).exists() or not weight_files(folder, layout):
        raise MissingWeights(_missing_line(checkpoint, published, repository, wanted_revision, folder))
    _check(folder, f"{repository}@{wanted_revision}", model_type)
    return Located(folder=folder, identity=_identity(repository, folder), layout=layout)


def is_path(name: str) -> bool:
    """Return True if `name` can only be a folder: the hub's names are OWNER/NAME."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def cached_folder(repository: str, revision: str) -> Path | None:
    """Return the snapshot of `repository` at `revision` in the hub's cache, None if there is none; no network.

    A snapshot with only the files that `fetch_command` names is accepted, although the hub's own client would call it
    incomplete.
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
    """Return the path of the hub's cache folder for a message, with "~" for the user's home."""
    from huggingface_hub.constants import HF_HUB_CACHE

    home = str(Path.home())
    return f"~{HF_HUB_CACHE.removeprefix(home)}" if HF_HUB_CACHE.startswith(f"{home}/") else HF_HUB_CACHE


def weight_files(folder: Path, layout: CheckpointLayout = TRANSFORMERS) -> list[Path]:
    """Return all safetensors files of a checkpoint's folder; [] if any is missing.

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
    """Raise EncoderError naming `file` if it is cut off or no safetensors file; reads the header, not the weights."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy"):
            pass
    except (SafetensorError, OSError) as error:
        size = file.stat().st_size
        raise EncoderError(
            f"{file}: damaged, or not a safetensors file ({size} bytes: {error}); delete it and download it again"
        ) from error


def load_weights(model_class: type[M], folder: Path, *, config: PretrainedConfig, label: str) -> M:
    """Return a transformers model with every weight from the safetensors in `folder`, in fp32.

    Raises:
        EncoderError: weights missing, of another shape, or damaged; the message has their number and the first name.
    """
    import torch
    from safetensors import SafetensorError
    from transformers.utils import logging

    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    load: Any = model_class.from_pretrained
    try:
        model, report = load(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # mismatches are reported and refused below
            output_loading_info=True,
        )
    except SafetensorError as error:
        raise EncoderError(f"{label}: damaged safetensors ({error}); delete the file and download it again") from error
    finally:
        if shows_progress:
            logging.enable_progress_bar()
    for kind, text in (("missing_keys", "has no"), ("mismatched_keys", "has another shape of")):
        names = sorted(str(item if isinstance(item, str) else item[0]) for item in report.get(kind) or ())
        if names:
            n_more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise EncoderError(
                f"{label} {text} {names[0]}{n_more}: weights of another model; choose another checkpoint"
            )
    checked_model: M = model
    return checked_model


def _check(folder: Path, label: str, model_type: str | tuple[str, ...]) -> None:
    """Raise an error unless `folder` holds a whole, readable checkpoint of the model type.

    MissingWeights if weights are missing, EncoderError for another type or a damaged file; `label` starts the message.
    """
    layout = CheckpointLayout.of(model_type)
    try:
        config = json.loads((folder / layout.config).read_text())
    except (OSError, ValueError) as error:
        raise EncoderError(f"{label}: no readable {layout.config} ({error}); download it again") from error
    stated_type = config.get("model_type") if isinstance(config, dict) else None
    if layout is OPEN_CLIP and isinstance(config, dict) and "vision_cfg" in config.get("model_cfg", {}):
        stated_type = "open_clip"  # open_clip checkpoints state no model type
    readable = (model_type,) if isinstance(model_type, str) else model_type
    if stated_type not in readable:
        readable_text = " or ".join(repr(name) for name in readable)
        raise EncoderError(f"{label}: holds a {stated_type!r} model, this scorer needs {readable_text}")
    if damaged := damage_lines(folder):
        raise EncoderError(damaged[0])
    files = weight_files(folder, layout)
    if not files:
        raise MissingWeights(
            f"{label}: no complete {layout.weights}; other formats can run code when read and are refused"
        )
    for file in files:
        check_readable(file)


def _missing_line(
    checkpoint: str, published: Checkpoint | None, repository: str, revision: str, folder: Path | None
) -> str:
    """The message for a checkpoint that is not here: a wrong path or name, or its size and download command."""
    if not published and is_path(checkpoint):
        return f"checkpoint {checkpoint!r}: no such folder; correct the path"
    if not published and "/" not in checkpoint:
        return f"{unknown_name('checkpoint', checkpoint, known_checkpoints())}; a repository of the hub is OWNER/NAME"
    if published:
        size, fetch = published.size, published.fetch_command
        if revision != published.revision:
            fetch = fetch.replace(published.revision, revision)
    else:
        size, fetch = "unknown size", f"hf download {repository} --revision {revision}"
    state = "has no safetensors in" if folder is not None else "is not in"
    return (
        f"checkpoint {checkpoint!r} ({size}) {state} the hub's cache {cache_place()}: run `{fetch}`, or give its "
        "folder as checkpoint=FOLDER"
    )


def known_checkpoint(name: str) -> Checkpoint | None:
    """Return the published checkpoint of that short name or repository; None for any other name."""
    checkpoints = known_checkpoints()
    return checkpoints.get(name) or next((item for item in checkpoints.values() if item.repository == name), None)


def weights_folder(pretrained: str, revision: str = "main") -> Path | None:
    """Return the local folder of a checkpoint: the named one, or its snapshot in the hub's cache; None if not here."""
    folder = Path(pretrained).expanduser()
    return folder if folder.is_dir() else cached_folder(pretrained, revision)


def weights_identity(pretrained: str, revision: str | None = None) -> str:
    """Return the exact name of weights: "repository@commit", or "folder@sha256:.." over the files of a local folder.

    Weights that are not on this machine give "repository@revision, not here"; a damaged file in the hub's cache gives
    "repository@commit, damaged"; an empty `pretrained` gives "".

    Args:
        pretrained: a known name, a repository of the hub, or a local folder; "" for none.
        revision: commit, tag or branch of a repository; None: the known one, else "main".
    """
    if not pretrained:
        return ""
    published = known_checkpoint(pretrained)
    repository = published.repository if published else pretrained
    wanted_revision = revision or (published.revision if published else "main")
    folder = weights_folder(repository, wanted_revision)
    return f"{repository}@{wanted_revision}, not here" if folder is None else _identity(repository, folder)


def _identity(repository: str, folder: Path) -> str:
    """Return the exact name of the weights in `folder`: a hash for a local folder, else "repository@commit".

    ", damaged" is appended if a file in the hub's cache is damaged.
    """
    if Path(repository).expanduser().is_dir():
        # Hash the content, not the path, so that one checkpoint has the same identity on every machine.
        return f"{folder.resolve().name}@{_folder_hash(folder)}"
    # In the hub's cache, the name of a snapshot's folder is its commit.
    return f"{repository}@{folder.name}" + (", damaged" if damage_lines(folder) else "")


def damage_lines(folder: Path) -> list[str]:
    """Return an error line for each file of `damaged_files`."""
    return [
        f"{file}: damaged, its content is not that of its hash; delete {file.resolve()} and download it again"
        for file in damaged_files(folder)
    ]


def damaged_files(folder: Path) -> list[Path]:
    """Return the damaged files of a snapshot in the hub's cache.

    The cache names a large file by its SHA-256 and any other by its git hash; a file is damaged if its content has
    another hash. Files outside such a cache are skipped. A file is hashed again only when its size or modification time
    changes.
    """
    damaged = []
    for file in sorted(item for item in folder.iterdir() if item.is_file() and item.suffix in _HASHED_SUFFIXES):
        blob = file.resolve()
        if blob.parent.name != "blobs" or not _BLOB_PATTERN.fullmatch(blob.name):
            continue
        stat = blob.stat()
        digest = (_file_hash if len(blob.name) == 64 else _git_hash)(blob, stat.st_size, stat.st_mtime_ns)
        if digest != blob.name:
            damaged.append(file)
    return damaged


@cache
def _git_hash(file: Path, size: int, changed_ns: int) -> str:
    """The hash that git gives the file's content; cached by size and time of change."""
    return hashlib.sha1(b"blob %d\0" % size + file.read_bytes()).hexdigest()


def _folder_hash(folder: Path) -> str:
    """ "sha256:" and 16 digits: a hash of names and contents of the folder's weights, rules and templates."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.suffix in _HASHED_SUFFIXES)
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{file.name}\0{_file_hash(file, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return f"sha256:{digest.hexdigest()[:16]}"


@cache
def _file_hash(file: Path, size: int, changed_ns: int) -> str:
    """The SHA-256 of a file; for a large file it is kept on disk until its size or modification time changes."""
    if size < _MIN_BYTES_TO_KEEP_HASH:
        return _sha256(file)
    home = cache_folder() / "hashes"
    key = hashlib.sha256(f"{file.resolve()}\0{size}\0{changed_ns}".encode()).hexdigest()[:32]
    if (home / key).is_file():
        return (home / key).read_text(encoding="utf-8")
    print(f"hashing {file} ({size / 1e9:.1f} GB), once", file=sys.stderr, flush=True)
    digest = _sha256(file)
    with suppress(OSError, InvalidInput):  # without a writable cache, every process hashes the file again
        home.mkdir(parents=True, exist_ok=True)
        with replace_file(home / key) as part:
            part.write_text(digest, encoding="utf-8")
    return digest


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with open(file, "rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
