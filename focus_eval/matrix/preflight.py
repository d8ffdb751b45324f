"""What does a matrix lack on this machine, and how is it fixed?"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from focus_eval.errors import FocusEvalError
from focus_eval.matrix.config import EncoderConfig, MatrixConfig, ModelConfig
from focus_eval.matrix.questions import QuestionSet

# What the config of an encoder's checkpoint must say it is.
_ARCHITECTURES = {"blip": "blip", "clip": "clip", "siglip": "siglip", "longclip": "clip"}


@dataclass(frozen=True)
class Missing:
    """One thing that is not there, and what to do about it."""

    what: str
    fix: str


def find_missing(matrix: MatrixConfig, sets: dict[str, QuestionSet], folder: Path) -> list[Missing]:
    """Return what a run of `matrix` would lack: packages, weights, videos, disk, an API key."""
    return [
        *_packages(matrix),
        *(one for encoder in matrix.encoders for one in _encoder(encoder)),
        *(one for model in matrix.models for one in _model(model)),
        *(one for questions in sets.values() for one in _videos(questions)),
        *_disk(matrix, sets, folder),
    ]


def _packages(matrix: MatrixConfig) -> Iterator[Missing]:
    if matrix.models and importlib.util.find_spec("lmms_eval") is None:
        yield Missing("the package lmms-eval", 'pip install "focus-eval[lmms]"')
    if matrix.encoders and importlib.util.find_spec("torch") is None:
        yield Missing("the package torch", 'pip install "focus-eval[encoders]"')


def _encoder(encoder: EncoderConfig) -> Iterator[Missing]:
    if encoder.encoder not in _ARCHITECTURES:
        return
    from focus_eval.scoring.encoders.checkpoints import locate

    checkpoint, revision = encoder.options.get("checkpoint"), encoder.options.get("revision")
    try:
        locate(
            str(checkpoint or encoder.name),
            revision=str(revision) if revision else None,
            model_type=_ARCHITECTURES[encoder.encoder],
        )
    except FocusEvalError as error:
        yield Missing(f"weights of encoder {encoder.name} ({encoder.disk_gigabytes:g} GB)", str(error))


def _model(model: ModelConfig) -> Iterator[Missing]:
    if model.api_key and not os.environ.get(model.api_key):
        yield Missing(f"the API key of model {model.name}", f"export {model.api_key}=...")
    checkpoint, revision = model.args.get("pretrained"), str(model.args.get("revision") or "main")
    if not isinstance(checkpoint, str) or Path(checkpoint).expanduser().is_dir():
        return
    from focus_eval.scoring.encoders.checkpoints import cached_folder

    if cached_folder(checkpoint, revision) is None:
        where = os.environ.get("HF_HOME", "~/.cache/huggingface")
        fix = f"hf download {checkpoint} --revision {revision} (goes to {where}; or name a folder as pretrained)"
        yield Missing(f"weights of model {model.name} ({model.disk_gigabytes:g} GB)", fix)


def _videos(questions: QuestionSet) -> Iterator[Missing]:
    if not questions.config.videos:
        return
    missing = questions.missing_videos()
    if missing:
        named = ", ".join(missing[:3]) + (", .." if len(missing) > 3 else "")
        source = questions.config.source
        yield Missing(
            f"{len(missing)} of {len(questions.by_video)} videos of {questions.config.name} ({named})",
            f"put them under {questions.config.videos}" + (f" (from {source})" if source else ""),
        )


def _disk(matrix: MatrixConfig, sets: dict[str, QuestionSet], folder: Path) -> Iterator[Missing]:
    needed = disk_gigabytes(matrix, sets)
    there = next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())
    free = shutil.disk_usage(there).free / 1e9
    if needed > free:
        yield Missing(
            f"disk: {needed:.0f} GB needed, {free:.0f} GB free on {there}", "free some, or name another place"
        )


def disk_gigabytes(matrix: MatrixConfig, sets: dict[str, QuestionSet]) -> float:
    """Return the gigabytes that weights and videos which are not there yet will take."""
    total = sum(one.config.disk_gigabytes for one in sets.values() if one.config.videos and one.missing_videos())
    lacking = [(encoder.disk_gigabytes, _encoder(encoder)) for encoder in matrix.encoders]
    lacking += [(model.disk_gigabytes, _model(model)) for model in matrix.models]
    return total + sum(size for size, missing in lacking if any(one.what.startswith("weights") for one in missing))
