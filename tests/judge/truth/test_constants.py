"""The bounds of errors rest on few numbers: whoever adds one, adds it here, with its reason beside it."""

import ast
from dataclasses import fields
from pathlib import Path

from kernelllm_judge import truth
from kernelllm_judge.policy import Policy

MODULES = ("agreement", "bounds", "honest", "numerics", "rows", "truth")
NO_BOUND = {"CHUNK", "AT_ONCE", "BLOCK", "LONGEST", "FEWEST", "DROPPED"}
"""How much is measured at once, and how many bits TF32 lacks."""


def test_the_bounds_rest_on_few_numbers():
    named = set()
    for module in MODULES:
        text = (Path(truth.__file__).parent / f"{module}.py").read_text()
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and not any(
                isinstance(part, ast.Call | ast.Tuple) for part in ast.walk(node.value)
            ):
                numbers = [p.value for p in ast.walk(node.value) if isinstance(p, ast.Constant)]
                if any(isinstance(number, int | float) for number in numbers):
                    named |= {f"{module}.{target.id}" for target in node.targets if target.id not in NO_BOUND}
    assert named == {"honest.PARTS", "rows.ALIKE", "rows.ROW"}
    names = [field.name for field in fields(Policy)]
    assert names[: names.index("chunk_elements")] == [
        *("own_factor", "rms_factor", "rms_chance", "single_eps", "most_terms", "half_eps"),
        *("flipped", "conditioning_eps", "honest_runs"),
    ]
