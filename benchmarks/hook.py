"""What `kernelllm-check` costs a commit of 50 files: 5 adopted targets, their 5 kernel modules, 40 other files.

    python benchmarks/hook.py [--runs 20]

Every run is a fresh process, as it is in pre-commit; beside it the same for an interpreter that does nothing.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collect import make_tree

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, Target, TensorSpec
from pytest_kernelllm.discover.scan import scan

FILES, TARGETS = 45, 5
DOMAIN = Domain(
    {"x": TensorSpec("float32", ("n", 64))}, {"weight": TensorSpec("float32", (64,))}, {"n": (1, 64)}
)
BODY = """
@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    tl.store(out_ptr + row + columns, x * tl.load(weight_ptr + columns) + 1)


def forward(self, x):
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)
    return out
"""


def adopt(root: Path, target: Target) -> None:
    """Give a target a kernel module, as a suggestion would."""
    file = root / target.path
    name = target.name.lower()
    kernel = file.parent / "_triton" / f"{name}.py"
    kernel.parent.mkdir(exist_ok=True)
    (kernel.parent / "__init__.py").touch()
    kernel.write_text(
        compose(Provenance(target.id, target.source_hash, "files"), target.name, [DOMAIN], BODY)
    )
    dotted = ".".join(kernel.relative_to(root).with_suffix("").parts)
    file.write_text(file.read_text().replace("@triton_candidate(", f'@triton_candidate(kernel="{dotted}", '))


@dataclass(frozen=True)
class Cost:
    """Of one process, in milliseconds: by the clock, and of the CPU, which other work on the machine disturbs less."""

    clock: float
    cpu: float


def cost(command: Sequence[str], root: Path) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"There is nothing to measure:\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(1000 * clock, 1000 * cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    hook = str(Path(sys.executable).with_name("kernelllm-check"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_tree(root, FILES, TARGETS)
        for target in scan([root], root).targets:
            adopt(root, target)
        files = [path for path in root.rglob("*.py") if path.stat().st_size and path.name != "numerics.py"]
        idle = [path for path in files if b"triton" not in path.read_bytes()]
        adopted = [target for target in scan(files, root).targets if target.kernel]
        commands = {
            "python, doing nothing": [sys.executable, "-c", "pass"],
            f"kernelllm-check, {len(idle)} files, none of them marked": [hook, *map(str, idle)],
            f"kernelllm-check, {len(files)} files, {len(adopted)} adopted kernels": [hook, *map(str, files)],
        }
        costs = {name: [cost(command, root) for _ in range(runs)] for name, command in commands.items()}
    print(f"medians of {runs} processes; in brackets the fastest")
    for name, each in costs.items():
        clock, cpu = sorted(c.clock for c in each), statistics.median(c.cpu for c in each)
        print(f"  {name:48} {statistics.median(clock):6.0f} ms ({clock[0]:.0f}), of the CPU {cpu:.0f} ms")


if __name__ == "__main__":
    main()
