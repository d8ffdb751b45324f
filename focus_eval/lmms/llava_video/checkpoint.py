"""Loads the original weights into transformers' classes, all of them and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_eval.errors import InvalidInput, MissingWeights
from focus_eval.lmms.llava_video.config import CheckpointConfig

if TYPE_CHECKING:
    from transformers import LlavaOnevisionConfig

# Original parameter names (patterns) and transformers' names.
_KEY_MAPPING = {
    r"^model\.mm_projector\.0\.": "model.multi_modal_projector.linear_1.",
    r"^model\.mm_projector\.2\.": "model.multi_modal_projector.linear_2.",
    r"^model\.(embed_tokens|layers|norm)\.": r"model.language_model.\1.",
}
_SIZES = {"lmms-lab/LLaVA-Video-7B-Qwen2": "16 GB", "lmms-lab/LLaVA-Video-72B-Qwen2": "146 GB"}
_INDEX = "model.safetensors.index.json"


def find_checkpoint(name: str) -> Path:
    """Return the folder of `name`: a folder, or a hub name whose files are in the hub's cache. Nothing is fetched.

    Raises:
        MissingWeights: neither; the message says how large it is and how to fetch it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except HFValidationError:
        raise MissingWeights(f"{name}: no such folder") from None
    except LocalEntryNotFoundError:
        size = f" ({_SIZES[name]})" if name in _SIZES else ""
        raise MissingWeights(
            f"{name}: no such folder and not in the hub's cache; fetch it{size} with: hf download {name}"
        ) from None


def load_network(
    config: CheckpointConfig,
    *,
    dtype: str = "bfloat16",
    attn_implementation: str = "sdpa",
    device_map: str | Mapping[str, Any] = "cpu",
    end_early: bool = True,
) -> Any:
    """Return the network with all weights of the checkpoint, in eval mode, its tower ending where the original's does.

    Args:
        dtype: "bfloat16", "float16" or "float32"; float16 can overflow in Qwen2.
        attn_implementation: "sdpa", "flash_attention_2" or "eager".
        device_map: a device, a map, or "auto" to spread the layers over the devices there are.
        end_early: False leaves transformers' class as it is, post-norm included.

    Raises:
        MissingWeights: a shard that is absent or broken.
        InvalidInput: parameters that are missing, unknown or of another shape.
    """
    import torch
    from transformers import LlavaOnevisionForConditionalGeneration

    if dtype not in ("bfloat16", "float16", "float32"):
        raise InvalidInput(f"dtype must be bfloat16, float16 or float32, got {dtype!r}")
    rows = vocabulary_rows(weight_shapes(config.folder), config.folder)
    loaded: Any = LlavaOnevisionForConditionalGeneration.from_pretrained(
        config.folder,
        config=transformers_config(config, vocab_size=rows),
        key_mapping=key_mapping(),
        dtype=getattr(torch, dtype),
        attn_implementation=attn_implementation,
        device_map=device_map,
        use_safetensors=True,
        local_files_only=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    network, report = loaded
    _refuse_partial(report, config.folder)
    return (end_tower_early(network) if end_early else network).eval()


def end_tower_early(network: Any) -> Any:
    """Make the tower return its last layer's raw output: the original never applies `post_layernorm`."""
    from torch import nn

    tower_body(network.model.vision_tower).post_layernorm = nn.Identity()
    return network


def tower_body(tower: Any) -> Any:
    """Return the part of a SigLIP tower that holds its layers: the first releases of transformers 5 nest it."""
    return getattr(tower, "vision_model", tower)


def key_mapping() -> dict[str, str]:
    """Return patterns of the original's parameter names and what the installed transformers calls them."""
    import torch
    from transformers import SiglipVisionConfig, SiglipVisionModel

    with torch.device("meta"):
        tower = SiglipVisionModel(SiglipVisionConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1))
    place = "model.vision_tower." if tower_body(tower) is tower else "model.vision_tower.vision_model."
    return {r"^model\.vision_tower\.vision_tower\.vision_model\.": place, **_KEY_MAPPING}


def transformers_config(config: CheckpointConfig, *, vocab_size: int) -> LlavaOnevisionConfig:
    """Return the LLaVA-OneVision config that computes what the original does: one vision layer fewer, no head."""
    from transformers import LlavaOnevisionConfig, Qwen2Config, SiglipVisionConfig

    text = {key: value for key, value in config.text.items() if key not in ("rope_theta", "vocab_size")}
    depth = config.vision["num_hidden_layers"] - 1
    return LlavaOnevisionConfig(
        text_config=Qwen2Config(
            **text,
            vocab_size=vocab_size,
            rope_parameters={"rope_type": "default", "rope_theta": config.text["rope_theta"]},
        ),
        vision_config=SiglipVisionConfig(**{**config.vision, "num_hidden_layers": depth}, vision_use_head=False),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        projector_hidden_act="gelu",
        tie_word_embeddings=config.text["tie_word_embeddings"],
    )


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return every tensor's shape by its original name, from the headers alone.

    Raises:
        MissingWeights: no safetensors files, shards that are absent, or one that is not complete.
    """
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for shard in _shards(folder):
        try:
            with safe_open(shard, framework="pt") as file:
                shapes.update({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
        except SafetensorError as error:
            raise MissingWeights(
                f"{shard}: not a complete safetensors file ({error}); cut short or a Git LFS pointer? Download it again"
            ) from None
    return shapes


def vocabulary_rows(shapes: Mapping[str, tuple[int, ...]], folder: Path) -> int:
    """Return the rows of the embedding as stored, which may differ from the config's `vocab_size`.

    The original loader resizes embedding and head to the tokenizer's length; a checkpoint saved after that has fewer
    rows than its config may say, and is as good.

    Raises:
        InvalidInput: embedding and head absent or of different length.
    """
    embedding, head = shapes.get("model.embed_tokens.weight"), shapes.get("lm_head.weight")
    if embedding is None or head is None:
        lacking = "model.embed_tokens.weight" if embedding is None else "lm_head.weight"
        raise InvalidInput(f"{folder}: no {lacking} in its weights, so not an original LLaVA-Video checkpoint")
    if embedding[0] != head[0]:
        raise InvalidInput(
            f"{folder}: the embedding has {embedding[0]} rows and lm_head {head[0]}; one of them was resized"
            " without the other, take the published weights"
        )
    return embedding[0]


def _shards(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if not index.is_file():
        single = folder / "model.safetensors"
        if single.is_file():
            return [single]
        raise MissingWeights(f"{folder}: neither model.safetensors nor {_INDEX}; only safetensors weights are read")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{index}: not an index of safetensors shards ({error!r})") from error
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise MissingWeights(
            f"{folder}: {len(absent)} of {len(names)} shards are missing: {', '.join(absent)}; download them again"
        )
    return [folder / name for name in names]


def _refuse_partial(report: Mapping[str, Any], folder: Path) -> None:
    for kind, problem in (
        ("missing_keys", "are missing"),
        ("unexpected_keys", "have no place in LLaVA-Video"),
        ("mismatched_keys", "have another shape than the config says"),
    ):
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in report[kind])
        if names:
            raise InvalidInput(f"{folder}: {len(names)} parameters {problem}, first {names[0]}")
