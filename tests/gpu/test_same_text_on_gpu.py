"""Whether the Inductor generator writes the same text for a GPU's architecture with that GPU and without one."""

import difflib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelllm_judge.environment import find_gpus

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_most_targets_of_an_example_get_the_same_text_with_and_without_the_gpu() -> None:
    share, lines = compare([EXAMPLES / "llm_blocks"], find_gpus()[0].arch, samples=1)
    assert share >= 0.9, "\n".join(lines)


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
    command = [sys.executable, __file__, arch, str(samples), *map(str, projects)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
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
    print(json.dumps(texts([Path(name) for name in sys.argv[3:]], sys.argv[1], int(sys.argv[2]))))
