"""Whether the Inductor generator writes the same text for a GPU's architecture with that GPU and without one.

    python benchmarks/same_text.py [--samples 4] [PROJECT ...]

Writes the candidates of every target of the examples (or of other projects) twice, in two processes: one sees the GPU, the
other does not. Prints the targets whose texts differ, with the first difference, and the share of equal ones. Needs a GPU.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def main() -> int:
    """Prints the comparison; 1 if fewer than 90 % of the targets get the same texts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("projects", nargs="*", type=Path, metavar="PROJECT", help="by default the examples")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--arch", help="by default that of the GPU")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    projects = options.projects or sorted(p for p in EXAMPLES.iterdir() if p.is_dir())
    if options.write:
        print(json.dumps(texts(projects, options.arch, options.samples)))
        return 0
    from kernelllm_judge.environment import find_gpus

    gpus = find_gpus()
    if not gpus:
        print("benchmarks/same_text.py needs a CUDA GPU to compare with, and finds none.", file=sys.stderr)
        return 2
    arch = options.arch or gpus[0].arch
    share, report = compare(projects, arch, options.samples)
    print("\n".join(report))
    return 0 if share >= 0.9 else 1


def compare(projects: list[Path], arch: str, samples: int) -> tuple[float, list[str]]:
    """Returns the share of targets with equal texts, and lines about all of them."""
    with ThreadPoolExecutor() as threads:
        seen, hidden = threads.map(lambda see: _written(projects, arch, samples, see), (True, False))
    lines, equal = [], 0
    for name, own in seen.items():
        other = hidden[name]
        if own == other:
            equal += 1
            continue
        pairs = zip(own, other, strict=False)
        first = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(own), len(other)))
        lines.append(f"{name}: candidate {first} differs ({len(own)} with the GPU, {len(other)} without)")
        if first < min(len(own), len(other)):
            difference = difflib.unified_diff(
                other[first].splitlines(), own[first].splitlines(), lineterm="", n=0
            )
            lines += [f"    {line}" for line in list(difference)[2:12]]
    share = equal / len(seen)
    lines.append(
        f"{equal} of {len(seen)} targets ({share:.0%}) get the same texts for {arch} with and without the GPU."
    )
    return share, lines


def _written(projects: list[Path], arch: str, samples: int, see_gpu: bool) -> dict[str, list[str]]:
    """Writes the texts in a process that sees the GPU, or does not."""
    environment = os.environ if see_gpu else {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, __file__, "--write", "--arch", arch, "--samples", str(samples)]
    done = subprocess.run(
        [*command, *map(str, projects)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def texts(projects: list[Path], arch: str, samples: int) -> dict[str, list[str]]:
    """Returns the kernel modules of every target, by the target's name; a reason where there is none."""
    from kernelllm_judge.render.errors import RenderError
    from kernelllm_judge.render.render import render
    from kernelllm_judge.target.live import load_target
    from pytest_kernelllm.discover.scan import scan
    from pytest_kernelllm.generate.inductor.generator import InductorGenerator
    from pytest_kernelllm.generate.protocol import Request

    generator, found = InductorGenerator(arch), {}
    for project in projects:
        sys.path.insert(0, str(project.resolve()))
        for target in scan([project], project).targets:
            live = load_target(project, target)
            written = found[f"{project.name}/{target.id}"] = []
            for _, completion in generator.generate(
                [Request(target, tuple(range(samples)), lambda live=live: live)]
            ):
                try:
                    written.append(render(completion, live).source)
                except RenderError as error:
                    written.append(str(error))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
