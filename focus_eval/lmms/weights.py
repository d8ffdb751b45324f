"""Checks the files of a model's checkpoint, without downloading anything."""

from __future__ import annotations

import json
from pathlib import Path

from focus_eval.core.errors import FocusEvalError
from focus_eval.encoders.weights import check_readable, damaged_blobs
from focus_eval.lmms.manifests import CHAT_SUFFIX, MODELS

# The original LLaVA-Video brings no processor: its image rules are those of its named vision tower.
_WITHOUT_PROCESSOR = ("llava_qwen",)
_TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("tokenizer.model",))
_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


def weights_problems(folder: Path, model: str) -> list[str]:
    """Return the problems of a checkpoint's folder for the lmms-eval model `model`, one line each.

    Checked are the architecture, every shard that the index names, tokenizer and processor. In the hub's cache each
    file's content is checked too, elsewhere only the headers of the shards. The list is empty for a good folder.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        model_type = str(config["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return ["no readable config.json"]
    model_name = next((name for name in (model, f"{model}{CHAT_SUFFIX}") if name in MODELS), None)
    # A model that does not say may load any architecture.
    expected = (MODELS.fact(model_name, "checkpoint_types", ()) if model_name else ()) or (model_type,)
    problems = []
    if model_type not in expected:
        problems.append(f"holds a {model_type!r} model, {model} needs {' or '.join(map(repr, expected))}")
    problems += _shard_problems(folder)
    if not any(all((folder / name).is_file() for name in names) for names in _TOKENIZERS):
        problems.append("no tokenizer (tokenizer.json, or vocab.json and merges.txt)")
    if model_type not in _WITHOUT_PROCESSOR and not any((folder / name).is_file() for name in _PROCESSORS):
        problems.append("no preprocessor_config.json")
    return problems + damaged_blobs(folder)


def weights_gigabytes(folder: Path) -> float:
    """Return the size of the safetensors files in `folder`, in 10^9 bytes."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors") if file.is_file()) / 1e9


def _shard_problems(folder: Path) -> list[str]:
    """Return a line for each missing or unreadable shard of a checkpoint's folder; [] if all are whole."""
    if (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        try:
            names = sorted(set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        except OSError:
            return [f"neither {_SINGLE} nor {_INDEX}"]
        except (ValueError, KeyError, TypeError, AttributeError):
            return [f"{_INDEX} is not an index of shards"]
    missing = [name for name in names if not (folder / name).is_file()]
    problems = [f"{len(missing)} of {len(names)} shards are missing: {', '.join(missing)}"] if missing else []
    for name in (name for name in names if name not in missing):
        try:
            check_readable(folder / name)
        except FocusEvalError as error:
            problems.append(str(error))
    return problems
