"""Run vLLM's own multimodal processor on saved requests, in a process of its own: python FILE requests results."""

from __future__ import annotations

import sys
from typing import Any


def processed(processor: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return token ids, placeholders and tensors that vLLM's engine would be given for a request of `LLM.generate`."""
    from vllm.multimodal.processing import ProcessorInputs, TimingContext

    inputs = ProcessorInputs(
        processor.info.get_tokenizer().encode(request["prompt"]),
        processor.info.parse_mm_data(request["multi_modal_data"]),
        hf_processor_mm_kwargs=request["mm_processor_kwargs"],
    )
    processed = processor.apply(inputs, TimingContext(enabled=False))
    (video,) = processed["mm_kwargs"]["video"]
    (placeholder,) = processed["mm_placeholders"]["video"]
    return {
        "token_ids": list(processed["prompt_token_ids"]),
        "placeholder": (placeholder.offset, placeholder.length, placeholder.is_embed),
        "video": {name: field.data for name, field in video.items()},
    }


def main(requests: str, results: str) -> None:
    """Process {checkpoint: requests} and save {checkpoint: one result or error line per request}."""
    import torch
    from vllm.config import ModelConfig
    from vllm.multimodal import MULTIMODAL_REGISTRY

    results_by_checkpoint: dict[str, list[dict[str, Any]]] = {}
    for checkpoint, prompts in torch.load(requests, weights_only=False).items():
        processor = MULTIMODAL_REGISTRY.create_processor(ModelConfig(model=checkpoint, dtype="float32"))
        results_by_checkpoint[checkpoint] = []
        for request in prompts:
            try:
                results_by_checkpoint[checkpoint].append(processed(processor, request))
            except ValueError as error:
                results_by_checkpoint[checkpoint].append({"error": f"{error}: {error.__cause__}"})
    torch.save(results_by_checkpoint, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
