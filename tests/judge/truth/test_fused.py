"""What measures large tensors on a GPU gives what PyTorch's operations give: here in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).with_name("fused_checks.py")


def test_fused_measurements_are_those_of_pytorchs_operations() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", str(CHECKS), "cpu"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
