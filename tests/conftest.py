"""Shared by all tests: one thread, as a run has."""

from __future__ import annotations

import pytest
import torch
from threadpoolctl import threadpool_limits

torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    with threadpool_limits(1):
        yield


@pytest.fixture
def _threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
