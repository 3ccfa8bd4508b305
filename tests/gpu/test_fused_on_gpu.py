"""What measures large tensors on a GPU gives what PyTorch's operations give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

CHECKS = Path(__file__).parents[1] / "judge/truth/fused_checks.py"


def test_fused_measurements_are_those_of_pytorchs_operations() -> None:
    ran = subprocess.run([sys.executable, str(CHECKS), "cuda"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
