"""How long the scan of a large project takes: 2,000 files of about 100 lines, 20 of them with a target.

    python benchmarks/collect.py [--files 2000] [--targets 20] [--keep FOLDER]

Every run is a fresh process, as it is in pytest. ``--keep`` leaves the tree for other measurements.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HELPER = '''
def {name}(values, *, scale=1.0, offset=0.0):
    """Scale the values and clip what is out of range."""
    result = []
    for index, value in enumerate(values):
        moved = value * scale + offset
        if moved > LIMIT:
            moved = LIMIT  # keep it in range
        result.append((index, moved))
    return sorted(result, key=lambda pair: pair[1])
'''

CLASS = '''
class {name}:
    """Keeps rows in memory until they are written."""

    def __init__(self, path, *, limit=128):
        self.path = path
        self.rows = []
        self.limit = limit

    def add(self, row):
        self.rows.append(dict(row))
        if len(self.rows) >= self.limit:
            self.flush()

    def flush(self):
        with open(self.path, "a") as file:
            file.writelines(json.dumps(row) + "\\n" for row in self.rows)
        self.rows.clear()
'''

TARGET = """

def inputs(batch: int = 8, seq: int = 512):
    return torch.randn(batch, seq, WIDTH)


@triton_candidate(inputs=inputs, init=(WIDTH,), dtypes=("float32",), dims={{"batch": (1, 64)}})
class {name}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return normalise(x, EPSILON) * self.weight
"""

NUMERICS = """import torch

EPSILON = 1e-6


def mean_square(x):
    return x.pow(2).mean(-1, keepdim=True)


def normalise(x, epsilon):
    return x * torch.rsqrt(mean_square(x) + epsilon)
"""

SCAN = """
import sys, time
from pathlib import Path
start = time.perf_counter()
from pytest_kernelllm.discover.scan import scan
found = scan([Path(sys.argv[1])], Path(sys.argv[1]))
print(time.perf_counter() - start, len(found.targets), len(found.problems))
"""


def make_tree(folder: Path, files: int, targets: int) -> None:
    """Write packages of 50 files each; the targets are spread evenly and share helpers two imports away."""
    every = files // targets
    for number in range(files):
        package = folder / "app" / f"part_{number // 50:02}"
        if not package.exists():
            package.mkdir(parents=True)
            (package / "__init__.py").write_text("")
        text = "import json\n\nLIMIT = 1000\n"
        text += "".join(HELPER.format(name=f"spread_{i}") for i in range(3))
        text += "".join(CLASS.format(name=f"Rows{i}") for i in range(2))
        text += "".join(HELPER.format(name=f"shift_{i}") for i in range(2))
        if number % every == 0:
            head = "import torch\nfrom torch import nn\n\nfrom app.numerics import EPSILON, normalise\n"
            text = head + "from pytest_kernelllm import triton_candidate\n\nWIDTH = 1024\n" + text
            text += TARGET.format(name=f"Norm{number}")
        (package / f"module_{number:04}.py").write_text(text)
    (folder / "app" / "__init__.py").write_text("")
    (folder / "app" / "numerics.py").write_text(NUMERICS)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        make_tree(folder, options.files, options.targets)
        lines = sum(len(path.read_text().splitlines()) for path in folder.rglob("*.py"))
        times = []
        for _ in range(options.runs):
            command = [sys.executable, "-c", SCAN, str(folder)]
            seconds, targets, problems = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.split()
            times.append(float(seconds))
    print(
        f"{options.files:,} files, {lines:,} lines, {targets} targets found, {problems} problems: "
        f"{statistics.median(times) * 1e3:.0f} ms (fastest {min(times) * 1e3:.0f} ms, {options.runs} runs)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
