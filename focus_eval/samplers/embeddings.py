"""Compares frames by their embeddings."""

from __future__ import annotations

import numpy as np

from focus_eval.errors import EncoderError
from focus_eval.types import FloatArray


def unit_rows(embeddings: FloatArray) -> FloatArray:
    """Return `embeddings` with rows of length 1, shape `(n, d)`.

    Raises:
        EncoderError: an embedding of length 0.
    """
    length = np.linalg.norm(embeddings, axis=1, keepdims=True)
    if (length == 0).any():
        raise EncoderError("an embedding has length 0 and no direction")
    unit: FloatArray = embeddings / length
    return unit
