"""``python benchmarks/kernelbench_names.py CHECKOUT``: write the names of KernelBench's problems.

``kernelllm export --to kernelbook`` leaves out what is on the list, because a model that was trained on the problems
cannot be tested on them. CHECKOUT is one of https://github.com/ScalingIntelligence/KernelBench.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytest_kernelllm.beside.kernelbook.same_program import TEST_PROBLEMS, same_program
from pytest_kernelllm.beside.passk.problems import LEVELS, find_problems


def main(arguments: list[str]) -> int:
    checkout = Path(arguments[0])
    commit = _commit(checkout)
    lines = [
        f"# The problems of KernelBench's levels 1 to 3 at {commit}, by the names of their programs.",
        "# Written by benchmarks/kernelbench_names.py; pytest_kernelllm/beside/kernelbook/same_program.py says what a name is.",
    ]
    for file, problem in find_problems(checkout, LEVELS).items():
        name = same_program(file.read_text(encoding="utf-8"))
        if name is None:
            print(f"{file} cannot be read.", file=sys.stderr)
            return 1
        lines.append(f"{name} {problem}")
    TEST_PROBLEMS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines) - 2} problems in {TEST_PROBLEMS}")
    return 0


def _commit(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
