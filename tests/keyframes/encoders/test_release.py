"""Nothing of an encoder stays in memory after `close()`, though the encoder itself is still referred to."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

from .test_contract import SCORERS, VLM

FRAMES = np.random.default_rng(3).integers(0, 256, (3, 40, 60, 3), dtype=np.uint8)
ON_TORCH = [name for name, case in SCORERS.items() if name != "offline" and case.options is not VLM]
_SKIPPED = {"module", "function", "builtin_function_or_method"}  # these lead to all that is imported


def held_by(encoder):
    """Return weak references to the networks and tensors that the encoder's attributes lead to."""
    references, queue, visited = [], [encoder], set()
    while queue:
        item = queue.pop()
        if id(item) in visited or isinstance(item, type) or type(item).__name__ in _SKIPPED:
            continue
        visited.add(id(item))
        if isinstance(item, (torch.nn.Module, torch.Tensor)):
            references.append(weakref.ref(item))
        queue.extend(gc.get_referents(item))
    return references


@pytest.mark.parametrize("name", ON_TORCH)
def test_no_network_and_no_tensor_is_alive_after_close(name, tmp_path):
    if name == "open_clip":
        pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    encoder = SCORERS[name].make(tmp_path)
    encoder.relevance(encoder.embed(FRAMES), "a cat")
    references = held_by(encoder)
    assert sum(isinstance(reference(), torch.nn.Parameter) for reference in references) > 10
    encoder.close()
    alive = [reference() for reference in references if reference() is not None]
    assert [type(item).__name__ for item in alive if isinstance(item, torch.nn.Module)] == []
    assert sum(item.numel() for item in alive if isinstance(item, torch.Tensor)) == 0
    assert encoder.revision
    encoder.close()
