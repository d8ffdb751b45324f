"""The published weights of the encoders: where they are, which revision, how large.

A revision is pinned where it is a commit. Hashes that could not be verified against the hub from here were taken from
public code that pins the same repository; each `note` says where that is so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WEIGHTS = "model.safetensors"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A published set of weights.

    Args:
        name: short name, as in `checkpoint=`.
        repository: on the model hub.
        revision: commit, or reference, that holds safetensors.
        gigabytes: size of the weights; None where it is not known here.
        model_type: of its `config.json`.
        encoder: registered name of the encoder that reads it.
        note: what to know about it.
    """

    name: str
    repository: str
    revision: str
    gigabytes: float | None
    model_type: str
    encoder: str
    note: str = ""

    @property
    def fetch_command(self) -> str:
        """Command that brings it into the hub's cache."""
        patterns = ("*.json", "*.txt", "*.model", "model*.safetensors")
        wanted = " ".join(f'--include "{pattern}"' for pattern in patterns)
        return f"hf download {self.repository} --revision {self.revision} {wanted}"

    @property
    def is_pinned(self) -> bool:
        """Whether `revision` is a commit, so that the same weights come whenever it is fetched."""
        return _COMMIT.fullmatch(self.revision) is not None

    @property
    def size(self) -> str:
        """Size of the weights as text."""
        return "size unknown" if self.gigabytes is None else f"{self.gigabytes:.2f} GB"


KNOWN = {
    checkpoint.name: checkpoint
    for checkpoint in (
        Checkpoint(
            name="blip-itm-large-coco",
            repository="Salesforce/blip-itm-large-coco",
            revision="c0273606af96037e7a3b2fb0ff4ae9620b517be6",
            gigabytes=1.78,
            model_type="blip",
            encoder="blip",
            note="FOCUS and AKS (LAVIS blip_image_text_matching, large)",
        ),
        Checkpoint(
            name="blip-itm-base-coco",
            repository="Salesforce/blip-itm-base-coco",
            revision="refs/pr/5",
            gigabytes=0.90,
            model_type="blip",
            encoder="blip",
            note="the main branch has no safetensors",
        ),
        Checkpoint(
            name="blip2-itm-vit-g",
            repository="Salesforce/blip2-itm-vit-g",
            revision="520bf73fd0ef6ccce791cd3f06908040aef2d8cc",
            gigabytes=4.70,
            model_type="blip-2",
            encoder="blip2",
            note="commit as pinned by public code, size from its 1.17 billion fp32 weights",
        ),
        Checkpoint(
            name="clip-vit-base-patch32",
            repository="openai/clip-vit-base-patch32",
            revision="c237dc49a33fc61debc9276459120b7eac67e7ef",
            gigabytes=0.61,
            model_type="clip",
            encoder="clip",
            note="AKS; the main branch has no safetensors",
        ),
        Checkpoint(
            name="clip-vit-large-patch14",
            repository="openai/clip-vit-large-patch14",
            revision="32bd64288804d66eefd0ccbe215aa642df71cc41",
            gigabytes=1.71,
            model_type="clip",
            encoder="clip",
        ),
        Checkpoint(
            name="siglip-so400m-patch14-384",
            repository="google/siglip-so400m-patch14-384",
            revision="9fdffc58afc957d1a03a25b10dba0329ab15c2a3",
            gigabytes=3.51,
            model_type="siglip",
            encoder="siglip",
        ),
        Checkpoint(
            name="siglip2-so400m-patch14-384",
            repository="google/siglip2-so400m-patch14-384",
            revision="e8e487298228002f3d8a82e0cd5c8ea9c567f57f",
            gigabytes=4.54,
            model_type="siglip",
            encoder="siglip2",
            note="commit as pinned by public code",
        ),
        Checkpoint(
            name="siglip2-so400m-patch16-naflex",
            repository="google/siglip2-so400m-patch16-naflex",
            revision="cc24074f717b612951c2dead130904ab9b65a81e",
            gigabytes=4.54,
            model_type="siglip2",
            encoder="siglip2",
            note="keeps the aspect of a frame; commit as pinned by public code",
        ),
        Checkpoint(
            name="metaclip-2-worldwide-huge-quickgelu",
            repository="facebook/metaclip-2-worldwide-huge-quickgelu",
            revision="c139061af7b10fdb2e754b60d2b1182a3d5526c2",
            gigabytes=None,
            model_type="metaclip_2",
            encoder="metaclip2",
            note="commit as pinned by public code; not for commercial use (CC-BY-NC)",
        ),
        Checkpoint(
            name="aimv2-large-patch14-224-lit",
            repository="apple/aimv2-large-patch14-224-lit",
            revision="main",
            gigabytes=None,
            model_type="aimv2",
            encoder="aimv2",
            note="the only commit found in public code holds Apple's own format, which needs code from the hub",
        ),
        Checkpoint(
            name="longclip-gmp-vit-l-14",
            repository="zer0int/LongCLIP-GmP-ViT-L-14",
            revision="6f0d363cbe2a68e3d3018c7161aecf40a918597a",
            gigabytes=1.71,
            model_type="clip",
            encoder="longclip",
            note="a fine-tune of Long-CLIP L; Q-Frame's own weights are published as a pickle only",
        ),
    )
}
