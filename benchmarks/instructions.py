"""How many instructions an element takes in Inductor's own kernel and in the kernel module made of it. Needs no GPU.

    python benchmarks/instructions.py --kernelbench CHECKOUT [--arch sm_90] [1/19 1/20 ...]

Takes the problems of KernelBench that become a single pointwise kernel, compiles both kernels for the same block of 1,024
elements and four warps, and counts what ptxas made of them (``nvdisasm``, without padding). What moves many bytes for each
instruction is as fast with 20 of them as with 10; GELU in 16 bits is not.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernelllm_judge.core.syntax import read_names, stored_names
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.kernel_source import read_kernels
from kernelllm_judge.render.render import render
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.beside.passk.problems import find_problems
from pytest_kernelllm.beside.verify.pairs import find_reference
from pytest_kernelllm.generate.inductor import cases
from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.variants import VARIANTS

BLOCK, WARPS = 1024, 4
PER_THREAD = BLOCK // (32 * WARPS)

HEADER = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
"""
IMPORTED = {"tl", "triton", "triton_helpers", "libdevice", "tl_math"}


def instructions(file: Path, name: str, types: dict[str, str], arch: int) -> float:
    """Returns the instructions for each element of a kernel in a file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel: Any = getattr(module, name)
    names = list(kernel.arg_names)
    aligned = {(names.index(n),): [["tt.divisibility", 16]] for n, kind in types.items() if kind[0] in "*i"}
    blocks = {(names.index(n),): BLOCK for n, kind in types.items() if kind == "constexpr"}
    source = ASTSource(kernel, types, blocks, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS})
    cubin = file.with_suffix(".cubin")
    cubin.write_bytes(compiled.asm["cubin"])
    disassembler = Path(triton.backends.nvidia.__file__).with_name("bin") / "nvdisasm"
    listing = subprocess.run([disassembler, "-c", cubin], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)", listing, re.MULTILINE)
    return sum(each != "NOP" for each in found) / PER_THREAD


def both(file: Path, arch: str, folder: Path) -> tuple[float, float] | None:
    """Returns the instructions of Inductor's kernel and of ours; None where it is not one pointwise kernel."""
    target = find_reference(str(file))
    if isinstance(target, str):
        raise SystemExit(target)
    live = load_target(file.parent, target)
    [completion] = cases.completions(live, gpu_for(arch), VARIANTS, (0,))
    kernels = list(read_kernels(ast.parse(completion.text)))
    if len(kernels) != 1 or kernels[0][1].kind != "pointwise" or "YBLOCK" in (kernels[0][1].types or {}):
        return None
    kernel = kernels[0][1]
    kernel.function.decorator_list = []
    known = {a.arg for a in kernel.function.args.args} | stored_names(kernel.function)
    # The module's own numbers, which are literals in what `torch.compile` runs.
    numbers = sorted(read_names(kernel.function) - known - IMPORTED)
    constants = "".join(f"{name} = tl.constexpr(0.75)\n" for name in numbers)
    theirs = folder / f"{file.stem}_inductor.py"
    theirs.write_text(f"{HEADER}{constants}\n@triton.jit\n{ast.unparse(kernel.function)}\n", encoding="utf-8")
    ours = folder / f"{file.stem}_ours.py"
    ours.write_text(render(completion, live).source, encoding="utf-8")
    function = next(
        node
        for node in ast.parse(ours.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")
    )
    types = {a.arg: _type(a) for a in function.args.args}
    compute = int(arch.removeprefix("sm_"))
    return (
        instructions(theirs, kernel.function.name, dict(kernel.types or {}), compute),
        instructions(ours, function.name, types, compute),
    )


def _type(parameter: ast.arg) -> str:
    if parameter.annotation is not None:
        return "constexpr"
    if parameter.arg.endswith("_ptr"):
        return "*fp32"
    return "i32" if parameter.arg.startswith("n_") else "fp32"


def rows(options: argparse.Namespace) -> Iterator[str]:
    """Yields the table's rows."""
    with tempfile.TemporaryDirectory() as scratch:
        for file in find_problems(options.kernelbench, [1, 2, 3]):
            number = f"{file.parent.name.removeprefix('level')}/{file.stem.partition('_')[0]}"
            if options.problems and number not in options.problems:
                continue
            try:
                found = both(file, options.arch, Path(scratch))
            except (TargetError, RenderError, ValueError) as error:
                print(f"{number}: {error}", file=sys.stderr)
                continue
            if found is not None:
                theirs, ours = found
                yield f"| {number} {file.stem.partition('_')[2]} | {theirs:.1f} | {ours:.1f} | {ours / theirs:.2f} |"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="such as 1/26; by default all")
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--arch", default="sm_90")
    options = parser.parse_args()
    print("| problem | Inductor's kernel | ours | ratio |\n|---|---:|---:|---:|")
    for row in rows(options):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
