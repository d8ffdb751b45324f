"""Encoders in these tests are tiny: one thread each is fastest, and does not wait for a core that others use."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)
