"""What the names in a matrix stand for on this machine: exact weights, exact questions."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path

from focus_eval.errors import FocusEvalError
from focus_eval.matrix.config import BenchmarkConfig, EncoderConfig, ModelConfig
from focus_eval.matrix.documents import find_documents
from focus_eval.matrix.questions import read_questions
from focus_eval.rows.identity import identity_hash

# Encoders whose weights are a checkpoint on the model hub, with the architecture its config must state.
HUB_ENCODERS: dict[str, str | tuple[str, ...]] = {
    "blip": "blip",
    "blip2": "blip-2",
    "clip": "clip",
    "longclip": "clip",
    "siglip": "siglip",
    "siglip2": ("siglip", "siglip2"),
    "metaclip2": "metaclip_2",
    "aimv2": "aimv2",
}


def model_weights(model: ModelConfig) -> str:
    """Return the exact checkpoint of `model` (see `lmms.weights.weights_identity`); "" where it names none."""
    from focus_eval.lmms.weights import weights_identity

    return weights_identity(str(model.args.get("pretrained") or ""), str(model.args.get("revision") or "main"))


def encoder_weights(encoder: EncoderConfig) -> str:
    """Return the exact checkpoint of `encoder`; "" where its weights are not a checkpoint from the hub."""
    if encoder.encoder not in HUB_ENCODERS:
        return ""
    from focus_eval.lmms.weights import weights_identity
    from focus_eval.scoring.encoders.published import KNOWN

    name = str(encoder.options.get("checkpoint") or encoder.name)
    # A short name and the repository's full name mean the same pinned weights.
    known = KNOWN.get(name) or next((item for item in KNOWN.values() if item.repository == name), None)
    revision = encoder.options.get("revision") or (known.revision if known else "main")
    return weights_identity(known.repository if known else name, str(revision))


def questions_digest(config: BenchmarkConfig) -> str:
    """Return a hash over what a benchmark asks, and over the file of rates where that stands in for its videos.

    "" where the questions are not on this machine: no run starts from that.
    """
    try:
        # Read again only when a file has changed: many parts of a matrix ask for the same benchmark.
        return _digest(config, _stamp(config))
    except (FocusEvalError, OSError):
        return ""


@lru_cache(maxsize=64)
def _digest_of(key: str, stamp: Hashable) -> str:
    config = BenchmarkConfig.model_validate_json(key)
    questions, _ = read_questions(config)
    asked = [
        [question.id, question.video, question.query, list(question.options), question.answer] for question in questions
    ]
    # Where videos are read, the rates change nothing.
    rates = Path(config.rates).read_text(encoding="utf-8") if config.rates and not config.videos else ""
    # Sorted: the order of the questions changes no row.
    return identity_hash({"asked": sorted(asked, key=lambda entry: str(entry[0])), "rates": rates})


def _digest(config: BenchmarkConfig, stamp: Hashable) -> str:
    return _digest_of(config.model_dump_json(), stamp)


def _stamp(config: BenchmarkConfig) -> Hashable:
    """Return what changes when a file of questions or rates does."""
    files = [Path(config.annotations)] if config.annotations else list(find_documents(config).files)
    files += [Path(config.rates)] if config.rates else []
    shards = [shard for file in files for shard in (sorted(file.glob("*.parquet")) if file.is_dir() else [file])]
    return tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in shards)
