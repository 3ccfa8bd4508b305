"""Writes a program as text: kernels, and the statements of a ``forward`` that launches them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.core.syntax import constant_int, read_names, rename, stored_names
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor import launch, torch_calls
from kernelllm_judge.render.inductor.column_sums import with_column_sums
from kernelllm_judge.render.inductor.kernel_text import call_text, function_text
from kernelllm_judge.render.inductor.lowered import lowered_kernels
from kernelllm_judge.render.inductor.names import Names, as_identifier, kernel_names
from kernelllm_judge.render.inductor.outputs import output_name, outputs, structure
from kernelllm_judge.render.inductor.program import Assign, Binding, Do, Launch, Layout, Program
from kernelllm_judge.render.inductor.program_text import Allocation, ProgramText
from kernelllm_judge.render.inductor.prune import fold_outputs, prune
from kernelllm_judge.render.inductor.torch_calls import size_of
from kernelllm_judge.render.inductor.views import Buffers, domain_layout
from kernelllm_judge.render.inductor.wrapper import runtime_parameters
from kernelllm_judge.render.lower import device_names, lower
from kernelllm_judge.render.visible import is_own

Ending = Callable[[Mapping[int, str]], Sequence[str]]

_MAX_GRID = 65535
"""The largest number of programs along the second and third axis of a CUDA launch."""


def emit(
    program: Program,
    binding: Binding,
    domain: Domain,
    kernel_name: str,
    parameters: Sequence[str],
    *,
    ending: Ending | None = None,
    taken: Sequence[str] = (),
) -> ProgramText:
    """Writes the text of one program.

    ``ending`` writes the last statements from the expressions of the results; ``taken`` are names of another program's.
    """
    emitter = _Emitter(with_column_sums(program), binding, domain, kernel_name, parameters, taken)
    return emitter.emit(ending or (lambda texts: [f"return {structure(binding.output, texts)}"]))


@dataclass(frozen=True)
class _Kernel:
    """A kernel that has been written."""

    name: str
    parameters: tuple[str, ...]
    """Its parameters by their original names, in order, without the constexpr ones."""
    renamed: Mapping[str, str]
    shape: launch.LaunchConfig


class _Emitter:
    """Goes through the steps once and collects what is known about each buffer."""

    def __init__(
        self,
        program: Program,
        binding: Binding,
        domain: Domain,
        kernel_name: str,
        parameters: Sequence[str],
        taken: Sequence[str],
    ) -> None:
        self.program = program
        self.binding = binding
        self.domain = domain
        self.kernel_name = kernel_name
        self.module_names = Names({"forward", "torch", "triton", "tl", "SUPPORTS", *device_names(), *taken})
        self.locals = Names({"self", "torch", "triton", "tl", *parameters})
        self.outputs: dict[str, str] = {}
        self.buffers = Buffers()
        self.functions: Mapping[str, ast.FunctionDef] = {}
        self.kernels: dict[str, _Kernel] = {}
        self.texts: list[str] = []
        self.helpers: set[str] = set()
        self.lines: list[str | Allocation] = []
        self.reference = ""
        """The tensor whose device, and dtype if they agree, new buffers get."""

    def emit(self, ending: Ending) -> ProgramText:
        """Writes the whole program."""
        needed, given = list(outputs(self.binding.output)), self.program.returns
        if missing := [i for i in needed if i >= len(given)]:
            raise RenderError(f"ModelNew returns result {missing[0]} of `call`, which returns {len(given)}.")
        returned = {i: given[i] for i in needed}
        lowered = lowered_kernels(self.program, self.binding, self.domain)
        pruned = prune(
            fold_outputs(self.program.steps), lowered, self.program.kernels, list(returned.values())
        )
        self.functions = pruned.functions
        self._add_arguments()
        for number, value in returned.items():
            for name in read_names(value) & {s.name for s in pruned.steps if isinstance(s, Assign)}:
                self.outputs.setdefault(name, output_name(self.binding.output, number))
        for step in pruned.steps:
            if isinstance(step, Assign):
                self._assign(step)
            elif isinstance(step, Do):
                self.lines.append(ast.unparse(self._library(step.value)))
            else:
                self._launch(step)
        texts = {i: ast.unparse(self.buffers.tensor(value)) for i, value in returned.items()}
        self.lines += ending(texts)
        written = tuple(k.name for k in self.kernels.values())
        return ProgramText(tuple(self.texts), written, tuple(self.lines), frozenset(self.helpers))

    # ----------------------------------------------------------------- tensors and sizes

    def _add_arguments(self) -> None:
        """Adds inputs and weights with their expressions, and the sizes that the program reads from them."""
        specs = self.binding.specs
        symbols: dict[str, str] = {}
        for step in self.program.steps:
            if isinstance(step, Assign) and (read := size_of(step.value)) is not None:
                argument, dim = read
                spec = specs.get(self.binding.arguments.get(argument, ""))
                if isinstance(spec, TensorSpec) and isinstance(spec.shape[dim], str):
                    symbols.setdefault(str(spec.shape[dim]), step.name)
        for argument, written in self.binding.arguments.items():
            spec = specs.get(written)
            layout = domain_layout(spec.shape, symbols) if isinstance(spec, TensorSpec) else None
            self.buffers.add(argument, written, layout, given=True)
        tensors = [
            w for w in self.binding.arguments.values() if isinstance(specs.get(w), TensorSpec) or "[" in w
        ]
        tensors = tensors or list(self.binding.arguments.values())
        self.reference = next((w for w in tensors if not is_own(w)), tensors[0] if tensors else "")

    def _assign(self, step: Assign) -> None:
        value = step.value
        if (read := size_of(value)) is not None:
            argument, dim = read
            spec = self.binding.specs.get(self.binding.arguments.get(argument, ""))
            named = spec.shape[dim] if isinstance(spec, TensorSpec) else None
            name = self.locals.take(
                named if isinstance(named, str) else f"{as_identifier(argument)}_size_{dim}"
            )
            self.lines.append(f"{name} = {ast.unparse(self.buffers.tensor(value))}")
            self.buffers.add(step.name, name)
        elif torch_calls.is_allocation(value):
            assert isinstance(value, ast.Call)
            self._allocate(step.name, value)
        else:
            usual = torch_calls.result_name(value)
            name = self.locals.take(self.outputs.get(step.name, usual))
            layout = self._layout(step.name)
            text = ast.unparse(self._library(value)) + torch_calls.ordered(value, layout)
            self.lines.append(f"{name} = {text}")
            self.buffers.add(step.name, name, layout)

    def _layout(self, name: str) -> Layout | None:
        """Returns the shape and strides of a library call's result, as allocated or as the text asserts."""
        for step in self.program.steps:
            if isinstance(step, Assign) and step.name == name and torch_calls.is_allocation(step.value):
                assert isinstance(step.value, ast.Call)
                return torch_calls.allocation(step.value)[:2]
        return self.program.layouts.get(name)

    def _allocate(self, name: str, call: ast.Call) -> None:
        shape, strides, dtype = torch_calls.allocation(call)
        written = self.locals.take(self.outputs.get(name, "scratch"))
        sizes = [_tuple([self.buffers.rename(n) for n in shape])]
        function = "torch.empty"
        if not torch_calls.is_contiguous(shape, strides):
            sizes.append(_tuple([self.buffers.rename(n) for n in strides]))
            function = "torch.empty_strided"
        spec = self.binding.specs.get(self.reference)
        reference = f"torch.{spec.dtype}" if isinstance(spec, TensorSpec) else ""
        head, output = f"{written} = {function}", name in self.outputs
        self.lines.append(Allocation(head, tuple(sizes), (dtype,), self.reference, (reference,), output))
        self.buffers.add(name, written, (shape, strides))

    def _library(self, value: ast.expr) -> ast.expr:
        """Writes a library call, with ``out=`` if the program has it."""
        if not isinstance(value, ast.Call):
            return self.buffers.tensor(value)
        call = torch_calls.vendor_call(value, self.buffers.tensor)
        for keyword in value.keywords:
            if keyword.arg == "out":
                call.keywords.append(ast.keyword("out", self.buffers.tensor(keyword.value)))
        return ast.fix_missing_locations(call)

    # ----------------------------------------------------------------- kernels

    def _launch(self, step: Launch) -> None:
        original = runtime_parameters(self.program.kernels[step.kernel].function)
        given = dict(zip([a.arg for a in original], step.arguments, strict=True))
        kernel = self.kernels.get(step.kernel) or self._define(step, given)
        blocks = dict(step.blocks) if step.blocks is not None else dict(kernel.shape.blocks)
        function = self.functions[step.kernel]
        arguments = [self._argument(given[p], step.kernel) for p in kernel.parameters if p in given]
        arguments += [path for name, path in self.binding.scalars.items() if name in kernel.parameters]
        constexprs = [a.arg for a in function.args.args if a.annotation is not None]
        options = [f"{kernel.renamed.get(b, b)}={blocks[b]}" for b in constexprs if b in blocks]
        warps = step.warps or kernel.shape.warps
        grid = self._grid(step, given, blocks, function)
        options.append(f"num_warps={warps}")
        if kernel.shape.stages:
            options.append(f"num_stages={kernel.shape.stages}")
        self.lines.append(call_text(f"{kernel.name}[{grid}]", [*arguments, *options], indent=4))

    def _argument(self, value: ast.expr, kernel: str) -> str:
        for name in read_names(value):
            path = self.binding.arguments.get(name, "")
            if path in self.binding.specs and self.binding.specs[path] is None:
                raise RenderError(f"`{kernel}` reads `{path}`, which is None in the target.")
        if constant_int(value) is not None or not read_names(value) & set(self.buffers.layouts):
            text = (
                self.buffers.tensor(value)
                if "reinterpret_tensor" in ast.unparse(value)
                else self.buffers.rename(value)
            )
            return ast.unparse(text)
        return ast.unparse(self.buffers.pointer(value))

    def _define(self, step: Launch, given: Mapping[str, ast.expr]) -> _Kernel:
        read = self.program.kernels[step.kernel]
        function = copy.deepcopy(self.functions[step.kernel])
        shape = launch.choose(read, function)
        used = read_names(function)
        assigned = stored_names(function)
        scalars = [ast.arg(name) for name in self.binding.scalars if name in used]
        kept = [a for a in function.args.args if a.annotation is None and a.arg in used - assigned]
        # Parameters are in the order of their use with sizes last, as the compiler's order depends on the dtype.
        order = list(_names_in_order(function))
        kept.sort(key=lambda a: (a.arg.endswith("numel"), "ptr" not in a.arg, order.index(a.arg)))
        blocks = [a for a in function.args.args if a.annotation is not None]
        name = self.module_names.take(self.kernel_name)
        helpers = self._helpers(step.kernel, used)
        function.args.args = [*kept, *scalars, *blocks]
        hints = {p: self._hint(value) for p, value in given.items()}
        renamed = kernel_names(read, function, hints, [*helpers.values(), *(used & set(device_names()))])
        parameters = tuple(a.arg for a in [*kept, *scalars])
        rename(function, {**renamed, **helpers})
        function.name = name
        self.texts.append(function_text(ast.fix_missing_locations(function)))
        self.helpers |= used & set(device_names())
        kernel = _Kernel(name, parameters, renamed, shape)
        self.kernels[step.kernel] = kernel
        return kernel

    def _helpers(self, kernel: str, used: set[str]) -> dict[str, str]:
        """Writes the combine functions that a kernel calls and returns their new names."""
        renamed = {}
        for helper in self.program.kernels[kernel].helpers:
            if helper.name in used:
                lowered = lower(helper)
                self.helpers |= read_names(lowered) & set(device_names())
                renamed[helper.name] = lowered.name = self.module_names.take("combine")
                self.texts.append(function_text(lowered))
        return renamed

    def _hint(self, value: ast.expr) -> str:
        """Returns an identifier for the value of a parameter."""
        base = value
        while isinstance(base, ast.Call) and base.args:
            base = base.args[0]
        if isinstance(base, ast.Name) and base.id in self.buffers.written:
            return as_identifier(ast.unparse(self.buffers.written[base.id]))
        return "size"

    def _grid(
        self,
        step: Launch,
        given: Mapping[str, ast.expr],
        blocks: Mapping[str, int],
        function: ast.FunctionDef,
    ) -> str:
        if step.grid is not None:
            sizes = [ast.unparse(self.buffers.rename(size)) for size in step.grid]
            while len(sizes) > 1 and sizes[-1] == "1":
                sizes.pop()
            return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        if step.numels is not None:
            numels = dict(zip("xyz", step.numels, strict=False))
        else:
            numels = {axis: given[f"{axis}numel"] for axis in "xyz" if f"{axis}numel" in given}
        fixed = launch.fixed_sizes(function)
        counts = []
        for axis, numel in numels.items():
            block = blocks.get(f"{axis.upper()}BLOCK", fixed.get(f"{axis.upper()}BLOCK", 1))
            size = self.buffers.rename(numel)
            counts.append(ast.unparse(size) if block == 1 else f"triton.cdiv({ast.unparse(size)}, {block})")
        if len(counts) == 2 and "tl.program_id(2)" in ast.unparse(function):
            layers = f"triton.cdiv({counts[1]}, {_MAX_GRID})"
            counts = [counts[0], f"triton.cdiv({counts[1]}, {layers})", layers]
        return f"({counts[0]},)" if len(counts) == 1 else f"({', '.join(counts)})"


def _names_in_order(node: ast.AST) -> Iterator[str]:
    """Yields every name in a tree, in the order of the text."""
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _names_in_order(child)


def _tuple(parts: Sequence[ast.expr]) -> str:
    return ast.unparse(ast.Tuple(list(parts), ast.Load()))
