"""What a sampler may see in a test: relevance, logits and embeddings of every frame, and which were asked."""

from __future__ import annotations

from focus_eval.samplers.contract import World, bumpy

__all__ = ["World", "bumpy"]
