"""Reads a LLaVA-Video checkpoint, and loads its original weights completely into transformers' classes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from focus_eval.core.errors import InvalidInput, MissingWeights, unknown_name
from focus_eval.core.options import check_names, checked_values
from focus_eval.core.resources import read_json_object
from focus_eval.keyframes.encoders.weights import SHARDS

if TYPE_CHECKING:
    import torch
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration


Pooling = Literal["bilinear", "average"]
Newline = Literal["grid", "frame", "one_token", "no_token"]
Template = Literal["qwen_1_5", "qwen_2_5", "chatml_direct"]
TimeInstruction = Literal["off", "lmms_eval", "model_card"]
Times = Literal["exact", "original"]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Choices in turning frames into tokens and a question into a prompt.

    Args:
        pooling: "bilinear" makes 14x14 tokens of 27x27 patches, "average" 13x13; "checkpoint" does as its config says.
        newline: place of the newline vector: after each row ("grid"), after each frame ("frame"), once at the end
            ("one_token") or nowhere ("no_token"); "checkpoint" does as its config says.
        template: the conversation template of the question.
        time_instruction: place of the sentence with the frames' times: after "<image>" and a newline as in training
            ("lmms_eval"), or straight after "<image>" ("model_card"); "off" leaves the sentence out.
        times: "exact" states the frames' presentation times; "original" states frame / round(fps), as the public code.
    """

    pooling: Pooling | Literal["checkpoint"] = "checkpoint"
    newline: Newline | Literal["checkpoint"] = "checkpoint"
    template: Template = "qwen_1_5"
    time_instruction: TimeInstruction = "off"
    times: Times = "exact"

    def __post_init__(self) -> None:
        """Raise InvalidInput for a value that is not among an option's choices."""
        checked_values("LLaVA-Video", self)


# AKS's scripts run lmms-eval's llava_vid with overwrite=False, which leaves the checkpoint's pooling alone.
PRESETS = {
    "aks": Setup(template="chatml_direct"),
    "lmms_eval": Setup(pooling="average", newline="grid", template="qwen_1_5"),
}
SETUP_OPTIONS = tuple(option.name for option in fields(Setup))


def make_setup(preset: str = "aks", **options: Any) -> Setup:
    """Return the preset with the given options changed; None leaves an option at the preset's value.

    Raises:
        InvalidInput: an unknown preset, option or value; the message has the nearest one.
    """
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    check_names("LLaVA-Video", SETUP_OPTIONS, options)
    changes = {option: value for option, value in options.items() if value is not None}
    if isinstance(changes.get("time_instruction"), bool):  # lmms-eval's own add_time_instruction is a bool
        changes["time_instruction"] = "lmms_eval" if changes["time_instruction"] else "off"
    return replace(PRESETS[preset], **changes)


@dataclass(frozen=True, kw_only=True)
class TokenLayout:
    """Number and order of the tokens made from patches of frames.

    Args:
        side: patches per side of a frame, 27 in the published models.
        pooling, newline: see `Setup`.
    """

    side: int
    pooling: Pooling
    newline: Newline

    @property
    def pooled_side(self) -> int:
        """Tokens per side of a frame: half, rounded up for "bilinear", down for "average" (27: 14 or 13)."""
        return math.ceil(self.side / 2) if self.pooling == "bilinear" else self.side // 2

    def count(self, frames: int) -> int:
        """Return the number of tokens of `frames` frames, newlines included."""
        side = self.pooled_side
        if self.newline == "grid":
            return frames * side * (side + 1)
        return frames * side * side + {"frame": frames, "one_token": 1, "no_token": 0}[self.newline]

    def check_fit(self, frames: int, *, other_tokens: int, context_tokens: int) -> None:
        """Raise InvalidInput, with the number that fits, if `frames` and `other_tokens` exceed the context."""
        n_tokens = self.count(frames) + other_tokens
        if n_tokens <= context_tokens:
            return
        room = context_tokens - other_tokens - self.count(0)
        n_fitting = max(0, room // (self.count(1) - self.count(0)))
        raise InvalidInput(
            f"{frames} frames and {other_tokens} tokens of prompt and answer need {n_tokens} tokens, the context holds"
            f" {context_tokens}; {n_fitting} frames fit"
        )

    def pool(self, patches: torch.Tensor) -> torch.Tensor:
        """Pool patches `(frames, side * side, width)` to `(frames, pooled_side, pooled_side, width)`.

        "bilinear" samples at half-pixel centres without antialiasing; "average" takes the mean of each 2x2 block and
        drops an odd last row and column.
        """
        from torch.nn import functional

        frames, _, width = patches.shape
        grid = patches.transpose(1, 2).reshape(frames, width, self.side, self.side).contiguous()
        if self.pooling == "bilinear":
            size = (self.pooled_side, self.pooled_side)
            grid = functional.interpolate(grid, size=size, mode="bilinear", align_corners=False)
        else:
            grid = functional.avg_pool2d(grid, kernel_size=2)
        return grid.permute(0, 2, 3, 1)

    def tokens(self, pooled: torch.Tensor, newline_vector: torch.Tensor) -> torch.Tensor:
        """Return the tokens `(count, width)` of one video: frames in order, rows from the top, newlines in place.

        Args:
            pooled: `(frames, pooled_side, pooled_side, width)`.
            newline_vector: `(width,)`.
        """
        import torch

        frames, rows, _, width = pooled.shape
        vector = newline_vector.to(pooled.device, pooled.dtype)
        if self.newline == "grid":
            return torch.cat([pooled, vector.expand(frames, rows, 1, width)], dim=2).reshape(-1, width)
        if self.newline == "frame":
            by_frame = pooled.reshape(frames, -1, width)
            return torch.cat([by_frame, vector.expand(frames, 1, width)], dim=1).reshape(-1, width)
        flat = pooled.reshape(-1, width)
        return torch.cat([flat, vector.expand(1, width)]) if self.newline == "one_token" else flat


HUB_NAME = "lmms-lab/LLaVA-Video-7B-Qwen2"

# The vision tower is named, not described, in the checkpoint: these are SigLIP's own published sizes.
_TOWERS = {
    "siglip-so400m-patch14-384": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 384,
        "patch_size": 14,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    }
}
_TEXT_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "rope_theta",
)
# Values for which our outputs were compared with those of the original code. A checkpoint with other values would load,
# but compute something else.
_REQUIRED = {
    "mm_projector_type": ("mlp2x_gelu",),
    "mm_patch_merge_type": ("spatial_unpad",),
    "mm_resampler_type": (None, "spatial_pool"),
    "mm_use_im_start_end": (False, None),
    "add_faster_video": (False, None),
    "use_pos_skipping": (False, None),
    "use_sliding_window": (False, None),
    "rope_scaling": (None,),
}
_OTHER_MODELS = {
    "llava_onevision": f"focus_llava_onevision (for LLaVA-Video itself take the original {HUB_NAME})",
    "qwen2_vl": "focus_qwen2_vl",
    "qwen2_5_vl": "focus_qwen2_5_vl",
    "qwen3_vl": "focus_qwen3_vl",
    "llava_llama": "lmms-eval's own llava, in an environment of its own",
    "llava_mistral": "lmms-eval's own llava, in an environment of its own",
}


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """Settings in a LLaVA-Video checkpoint's config.json.

    Args:
        folder: folder of the checkpoint.
        text: settings of the Qwen2 language model, under transformers' names.
        vision: settings of the SigLIP tower at its full depth; the last layer is never run.
        pooling, newline: those of the model's training.
        context_tokens: largest number of tokens in a sequence, those of the video included.
    """

    folder: Path
    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    pooling: Pooling
    newline: Newline
    context_tokens: int

    @property
    def side(self) -> int:
        """Patches per side of a frame before pooling: 27 in the published models."""
        return int(self.vision["image_size"]) // int(self.vision["patch_size"])

    def layout(self, setup: Setup) -> TokenLayout:
        """Return the token layout under `setup`; "checkpoint" takes the checkpoint's pooling or newlines."""
        return TokenLayout(
            side=self.side,
            pooling=self.pooling if setup.pooling == "checkpoint" else setup.pooling,
            newline=self.newline if setup.newline == "checkpoint" else setup.newline,
        )


def read_config(folder: Path) -> CheckpointConfig:
    """Read `folder/config.json`.

    If the tower is not the published one, an entry `vision_config` describes the whole tower in SigLIP's key names.

    Raises:
        MissingWeights: no config.json.
        InvalidInput: not JSON, another model (the message names the model to use), or a setting that was not compared
            with the original.
    """
    path = folder / "config.json"
    if not path.exists():
        raise MissingWeights(f"{folder}: no config.json; a LLaVA-Video checkpoint such as {HUB_NAME} is needed")
    return parse_config(read_json_object(path), folder)


def parse_config(raw: Mapping[str, Any], folder: Path) -> CheckpointConfig:
    """Check and convert the config `raw` of the checkpoint in `folder`; see `read_config`."""
    path = folder / "config.json"
    _refuse_other_models(raw, folder)
    for key, allowed in _REQUIRED.items():
        if raw.get(key) not in allowed:
            raise InvalidInput(f"{path}: {key} is {raw.get(key)!r}, only {allowed[0]!r} is known to equal the original")
    missing = [key for key in _TEXT_KEYS if key not in raw]
    if missing:
        raise InvalidInput(f"{path}: no {', '.join(missing)}")
    return CheckpointConfig(
        folder=folder,
        text={key: raw[key] for key in _TEXT_KEYS},
        vision=_vision(raw, path),
        pooling=cast(Pooling, _choice(raw, "mm_spatial_pool_mode", get_args(Pooling), path)),
        newline=cast(Newline, _choice(raw, "mm_newline_position", get_args(Newline), path)),
        context_tokens=min(raw["max_position_embeddings"], raw.get("tokenizer_model_max_length") or 2**31),
    )


def _refuse_other_models(raw: Mapping[str, object], folder: Path) -> None:
    """Raise InvalidInput for the config of another model, naming the model to use for it."""
    kind = raw.get("model_type")
    if kind != "llava_qwen":
        use = _OTHER_MODELS.get(str(kind), "the wrapper of its own family")
        raise InvalidInput(f"{folder} is a {kind!r} checkpoint, not LLaVA-Video; use {use}")
    if "mm_newline_position" not in raw:
        raise InvalidInput(
            f"{folder} is a llava_qwen checkpoint without mm_newline_position, so LLaVA-OneVision or older, not"
            " LLaVA-Video; use focus_llava_onevision with llava-hf/llava-onevision-qwen2-7b-ov-hf"
        )


def _vision(raw: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The settings of the vision tower: stated ones, or those of a known tower; raises InvalidInput otherwise."""
    if "vision_config" in raw:
        return dict(raw["vision_config"])
    tower = str(raw.get("mm_vision_tower"))
    name = tower.rstrip("/").rsplit("/", 1)[-1]
    if name not in _TOWERS:
        raise InvalidInput(f"{path}: vision tower {tower!r} is not {' or '.join(_TOWERS)}, so not LLaVA-Video")
    return _TOWERS[name]


def _choice(raw: Mapping[str, object], key: str, values: tuple[str, ...], path: Path) -> str:
    """The value of `key` in the config; raises InvalidInput unless it is one of `values`."""
    value = raw.get(key)
    if value not in values:
        raise InvalidInput(f"{path}: {key} is {value!r}, known: {', '.join(values)}")
    return str(value)


# Pattern of original parameter names -> transformers' name.
_KEY_MAPPING = {
    r"^model\.mm_projector\.0\.": "model.multi_modal_projector.linear_1.",
    r"^model\.mm_projector\.2\.": "model.multi_modal_projector.linear_2.",
    r"^model\.(embed_tokens|layers|norm)\.": r"model.language_model.\1.",
}


def find_checkpoint(name: str) -> Path:
    """Return the folder of `name`: a folder, or a hub name whose files are in the hub's cache. Nothing is fetched.

    Raises:
        MissingWeights: neither exists; the message says how to fetch it.
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
        raise MissingWeights(
            f"{name}: no such folder and not in the hub's cache; fetch it with: hf download {name}"
        ) from None


def load_network(
    config: CheckpointConfig,
    *,
    dtype: str = "bfloat16",
    attn_implementation: str = "sdpa",
    device_map: str | Mapping[str, object] = "cpu",
    end_early: bool = True,
) -> LlavaOnevisionForConditionalGeneration:
    """Return the network with all weights of the checkpoint, in eval mode; the tower ends at the original's last layer.

    Args:
        dtype: "bfloat16", "float16" or "float32"; float16 can overflow in Qwen2.
        attn_implementation: "sdpa", "flash_attention_2" or "eager".
        device_map: a device, a map, or "auto" to spread the layers over all devices.
        end_early: False keeps the norm that transformers' class applies after the tower's last layer.

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
    network: LlavaOnevisionForConditionalGeneration
    network, report = loaded
    _refuse_partial(report, config.folder)
    if end_early:
        end_tower_early(network)
    network.eval()
    return network


def end_tower_early(network: LlavaOnevisionForConditionalGeneration) -> None:
    """Remove, in place, the norm after the tower's last layer, which the original never applies."""
    from torch import nn

    tower_body(network.model.vision_tower).post_layernorm = nn.Identity()


def tower_body(tower: object) -> Any:
    """Return the part of a SigLIP tower with its layers: `vision_model` in early releases of transformers 5."""
    return getattr(tower, "vision_model", tower)


def key_mapping() -> dict[str, str]:
    """Return the installed transformers' parameter names by regular expression of the original's names."""
    import torch
    from transformers import SiglipVisionConfig, SiglipVisionModel

    with torch.device("meta"):
        tower = SiglipVisionModel(SiglipVisionConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=1))
    place = "model.vision_tower." if tower_body(tower) is tower else "model.vision_tower.vision_model."
    return {r"^model\.vision_tower\.vision_tower\.vision_model\.": place, **_KEY_MAPPING}


def transformers_config(config: CheckpointConfig, *, vocab_size: int) -> LlavaOnevisionConfig:
    """Return the LLaVA-OneVision config that is equivalent to the original: one vision layer fewer, no head."""
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
    """Return the number of stored embedding rows, which may differ from the config's `vocab_size`.

    The original loader resizes embedding and head to the tokenizer's length; a checkpoint saved after that has fewer
    rows than its config may state, and is valid.

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
    """The safetensors files of a checkpoint's folder; raises MissingWeights if one is missing."""
    index = folder / SHARDS
    if not index.is_file():
        single = folder / "model.safetensors"
        if single.is_file():
            return [single]
        raise MissingWeights(f"{folder}: neither model.safetensors nor {SHARDS}; only safetensors weights are read")
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


def _refuse_partial(report: Mapping[str, Iterable[object]], folder: Path) -> None:
    """Raise InvalidInput if loading left out a weight, found an unknown one or one of another shape."""
    for kind, problem in (
        ("missing_keys", "are missing"),
        ("unexpected_keys", "have no place in LLaVA-Video"),
        ("mismatched_keys", "have another shape than the config says"),
    ):
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in report[kind])
        if names:
            raise InvalidInput(f"{folder}: {len(names)} parameters {problem}, first {names[0]}")
