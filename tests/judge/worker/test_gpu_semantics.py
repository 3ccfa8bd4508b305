"""The interpreter computes what a GPU computes. In a process of its own: it patches Triton.

``tests/gpu/test_interpreter_on_gpu.py`` runs the same kernels on a GPU.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelllm_judge.worker.gpu_semantics import TF32_BITS

SCRIPT = """
import json, os, sys, traceback
os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, {folder!r})
from kernelllm_judge.worker.warm import prepare_interpreter

prepare_interpreter()
from gpu_kernels import CHECKS

failed = {{}}
for name, check in CHECKS.items():
    try:
        check("cpu")
        failed[name] = ""
    except BaseException:
        failed[name] = traceback.format_exc()
print(json.dumps(failed))
"""


@pytest.fixture(scope="module")
def failed():
    script = SCRIPT.format(folder=str(Path(__file__).parents[2] / "helpers"))
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "nan",
            "nan_in_reductions",
            "own_reductions",
            "reduction_with_branches",
            "clamp",
            "scalars",
            "wide_scalars",
            "dot",
            "dot_of_infinity",
            "bfloat16_dot",
            "half_sums",
            "eight_bits",
            "grid",
        ),
        *("words", "builtins", "value_of_constants", "other_names"),
        *("libdevice", "quick_functions", "missing_function"),
    ],
)
def test_kernels_compute_what_they_compute_on_a_gpu(failed, name):
    assert failed[name] == ""


def test_tf32_keeps_ten_bits_of_the_mantissa():
    kept = np.array([1 + 2.0**-10, 1 + 2.0**-11], np.float32).view(np.uint32) & TF32_BITS
    np.testing.assert_array_equal(kept.view(np.float32), [1 + 2.0**-10, 1.0])
