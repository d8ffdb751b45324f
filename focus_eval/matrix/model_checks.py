"""Checks models and encoders before a run: arguments, weights, keys, memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from focus_eval.errors import FocusEvalError, MissingWeights, unknown_name
from focus_eval.matrix.answering import load_arguments
from focus_eval.matrix.config import EncoderConfig, ModelConfig
from focus_eval.matrix.devices import best_device, gpu_gigabytes, host_gigabytes
from focus_eval.matrix.requirement import Missing
from focus_eval.matrix.resolved import HUB_ENCODERS

_TOKENIZERS = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), ("spiece.model",))
# A request for the list of models is free; a service that does not answer within this is not reachable.
_API_SECONDS = 10


def argument_problems(
    model: ModelConfig, frames: int, *, without_weights: bool, without_key: bool
) -> Iterator[Missing]:
    """Yield what the model's own constructor would refuse before it loads a weight: its real checks are run.

    Args:
        frames: most frames per question.
        without_weights, without_key: these are missing, and named already.
    """
    from lmms_eval.models import get_model, list_available_models

    known = list_available_models(include_aliases=True)
    if model.model not in known:
        # Only ours are named: lmms-eval has two hundred.
        ours = [name for name in known if name.startswith("focus_")]
        yield Missing(f"model {model.name}", str(unknown_name("lmms-eval model", model.model, ours)))
        return
    # A missing key is reported already, and must not hide what else is wrong.
    key, stand_in = model.api_key, without_key and bool(model.api_key)
    if stand_in:
        os.environ[key] = "any"
    try:
        arguments = load_arguments(model, frames=frames, device=best_device())
        made = get_model(model.model)
        # A stock wrapper has no such check: it would have to load its weights.
        if hasattr(made, "check_arguments"):
            made.check_arguments(arguments)
    except MissingWeights as error:
        if not without_weights:
            yield Missing(f"weights of model {model.name}", str(error))
    except FocusEvalError as error:
        if not without_weights or "config.json" not in str(error):
            yield Missing(f"arguments of model {model.name} ({model.model})", str(error))
    except (ImportError, ValueError, TypeError, OSError) as error:
        yield Missing(f"model {model.name} ({model.model})", f"lmms-eval cannot make it: {error}")
    finally:
        if stand_in:
            # Nothing after this may take the stand-in for a key.
            del os.environ[key]


def weights_problems(model: ModelConfig) -> Iterator[Missing]:
    """Yield what is missing of a model's checkpoint: all of it, shards, the right architecture, its tokenizer."""
    from focus_eval.lmms.weights import weights_folder
    from focus_eval.lmms.weights import weights_problems as problems_of
    from focus_eval.scoring.encoders.checkpoints import is_path

    pretrained, revision = str(model.args.get("pretrained") or ""), str(model.args.get("revision") or "main")
    if not pretrained:
        return
    fetch = f"hf download {pretrained}" + (f" --revision {revision}" if revision != "main" else "")
    folder = weights_folder(pretrained, revision)
    what = f"weights of model {model.name} ({pretrained}, {model.disk_gigabytes:g} GB)"
    if folder is None and is_path(pretrained):
        yield Missing(f"weights of model {model.name}: no folder {pretrained}", "correct the path")
        return
    if folder is None:
        yield Missing(f"{what} are not on this machine", fetch, gigabytes=model.disk_gigabytes)
        return
    is_local = Path(pretrained).expanduser().is_dir()
    for problem in problems_of(folder, model.model):
        fix = f"put the whole checkpoint into {folder}" if is_local else f"{fetch} (fetches only what is not there)"
        yield Missing(f"{what}: {problem}", fix)


def key_problems(model: ModelConfig, notes: list[str]) -> Iterator[Missing]:
    """Yield what keeps an API from answering: no key, a refused key, an unknown model, an unreachable service."""
    if not model.api_key:
        return
    key = os.environ.get(model.api_key)
    if not key:
        yield Missing(f"the API key of model {model.name}", f"export {model.api_key}=...")
        return
    try:
        import openai
    except ImportError:
        return  # reported as a missing package
    where = str(model.args.get("base_url") or os.environ.get("OPENAI_API_BASE") or "") or None
    # No retries: a service that is down should be reported now, not after a minute.
    client = openai.OpenAI(api_key=key, base_url=where, timeout=_API_SECONDS, max_retries=0)
    name = str(model.args.get("model_version") or model.args.get("model") or "")
    service = str(client.base_url).rstrip("/")
    try:
        served = [item.id for item in client.models.list()]
    except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
        yield Missing(
            f"an API key of model {model.name} that {service} accepts (it says {error.status_code})",
            f"export {model.api_key}=... with a key of that service",
        )
    except openai.APIConnectionError:
        yield Missing(f"the API of model {model.name}: {service} cannot be reached", "check the network and base_url")
    except openai.APIStatusError as error:
        notes.append(f"{model.name}: {service} lists no models ({error.status_code}): its key could not be checked")
    else:
        # An empty list says nothing of what is served.
        if served and name and name not in served:
            known = ", ".join(sorted(served)[:5])
            yield Missing(f"model {name} at {service}", f"set model_version to one it serves: {known}")


def encoder_problems(encoder: EncoderConfig) -> Iterator[Missing]:
    """Yield what is missing of an encoder: its packages, weights, tokenizer; options that it does not have."""
    from focus_eval.scoring.registry import parse_options

    try:
        parse_options(encoder.encoder, encoder.options)
    except FocusEvalError as error:
        yield Missing(f"encoder {encoder.name}", str(error))
        return
    # Recorded relevance is read from a file, which is checked like weights.
    path = encoder.options.get("path")
    if isinstance(path, str) and not Path(path).expanduser().exists():
        yield Missing(f"the file {path} of encoder {encoder.name}", "record it, or correct the option path")
    if encoder.encoder in HUB_ENCODERS:
        yield from _checkpoint_problems(encoder)


def _checkpoint_problems(encoder: EncoderConfig) -> Iterator[Missing]:
    from focus_eval.scoring.encoders.checkpoints import locate

    checkpoint, revision = encoder.options.get("checkpoint"), encoder.options.get("revision")
    try:
        found = locate(
            str(checkpoint or encoder.name),
            revision=str(revision) if revision else None,
            model_type=HUB_ENCODERS[encoder.encoder],
        )
    except FocusEvalError as error:
        # Only what must be fetched takes room on the disk.
        size = encoder.disk_gigabytes if isinstance(error, MissingWeights) else 0.0
        yield Missing(f"weights of encoder {encoder.name} ({encoder.disk_gigabytes:g} GB)", str(error), gigabytes=size)
        return
    if not any(all((found.folder / name).is_file() for name in names) for names in _TOKENIZERS):
        yield Missing(f"the tokenizer of encoder {encoder.name} in {found.folder}", "fetch the checkpoint again")


def memory_problems(model: ModelConfig, notes: list[str]) -> Iterator[Missing]:
    """Yield too few GPUs, or too little memory for the weights; a model that will run on the CPU is a note."""
    from focus_eval.lmms.weights import weights_folder, weights_gigabytes

    pretrained: Any = model.args.get("pretrained")
    folder = weights_folder(str(pretrained), str(model.args.get("revision") or "main")) if pretrained else None
    if not model.needs_gpu or folder is None:
        return
    needed, cards, wanted = weights_gigabytes(folder), gpu_gigabytes(), int(model.gpus or 1)
    if not cards:
        notes.append(f"{model.name} will run on the CPU: torch finds no GPU")
        # Weights only: frames and activations come on top, so a model that fails here cannot run.
        memory = host_gigabytes()
        if memory is not None and needed > memory:
            yield Missing(
                f"memory for model {model.name}: {needed:.0f} GB of weights, {memory:.0f} GB here", "use a GPU"
            )
    elif len(cards) < wanted:
        yield Missing(f"GPUs for model {model.name}: it takes {wanted}, {len(cards)} are here", "use a larger node")
    elif needed > sum(cards[:wanted]):
        yield Missing(
            f"memory for model {model.name}: {needed:.0f} GB of weights, {sum(cards[:wanted]):.0f} GB on {wanted} GPUs",
            "set gpus in the model's config, and device_map: auto",
        )
