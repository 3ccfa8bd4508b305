"""Restores PyTorch's settings of precision after a test that changes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Works in every module that imports it."""
    tf32, precision = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    yield
    torch.backends.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision(precision)
