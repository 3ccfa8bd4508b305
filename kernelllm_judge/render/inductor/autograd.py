"""Writes a forward and a backward program as a ``torch.autograd.Function``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelllm_judge.core.records import Domain
from kernelllm_judge.render.inductor.emit import emit
from kernelllm_judge.render.inductor.names import Names, as_identifier
from kernelllm_judge.render.inductor.outputs import output_name, outputs, structure
from kernelllm_judge.render.inductor.program import Binding, Program
from kernelllm_judge.render.inductor.program_text import AutogradText, ProgramText
from kernelllm_judge.render.inductor.sections import Backward, Passed
from kernelllm_judge.render.visible import is_own

_OF_CTX = ("dirty_tensors", "materialize_grads", "metadata", "name", "needs_input_grad", "next_functions")
"""Attributes that a ``ctx`` has."""


@dataclass(frozen=True)
class Gradients:
    """The backward pass of a program."""

    program: Program
    header: Backward


def emit_both(
    program: Program, gradients: Gradients, binding: Binding, domain: Domain, stem: str, function: str
) -> ProgramText:
    """Writes the text of a program with its gradients."""
    return _Function(program, gradients, binding, domain).text(stem, function)


class _Function:
    """Names what both passes share: arguments, what is saved, and the gradients of outputs."""

    def __init__(self, program: Program, gradients: Gradients, binding: Binding, domain: Domain) -> None:
        self.program = program
        self.gradients = gradients
        self.binding = binding
        self.domain = domain
        names = Names({"ctx", "self", "torch", "triton", "tl"})
        paths = sorted(binding.arguments.values(), key=is_own)  # inputs first
        self.arguments = {path: names.take(as_identifier(path)) for path in paths}
        """The parameter of the autograd function for each expression over ``self`` and forward's parameters."""
        self.scalars = {name: names.take(name) for name in binding.scalars}
        self.results: dict[int, str] = {}
        """A name for each tensor that the target returns."""
        taken = Names([*self.arguments.values(), *self.scalars.values()])
        for number in outputs(binding.output):
            self.results[number] = taken.take(output_name(binding.output, number))
        self.incoming = {number: taken.take(f"grad_{name}") for number, name in self.results.items()}
        unpacked, of_ctx = Names(["ctx", *self.incoming.values()]), Names([*_OF_CTX, *self.scalars.values()])
        self.kept: list[tuple[Passed, str]] = []
        """What is saved, with its expression in the backward pass."""
        for saved in gradients.header.saved:
            name = as_identifier(saved.name)
            self.kept.append((saved, f"ctx.{of_ctx.take(name)}" if saved.size else unpacked.take(name)))

    def text(self, stem: str, function: str) -> ProgramText:
        """Writes the kernels, the autograd function and the statement that applies it."""
        backward = self._backward(stem)
        forward = self._forward(stem, backward)
        tensors = [name for saved, name in self.kept if not saved.size]
        made = AutogradText(
            function,
            tuple(tensors),
            self.gradients.header.recomputed,
            (*self.arguments.values(), *self.scalars.values()),
            tuple(self.incoming.values()),
            forward.statements,
            backward.statements,
        )
        values = [*self.arguments, *(self.binding.scalars[name] for name in self.scalars)]
        return ProgramText(
            forward.kernels + backward.kernels,
            forward.names + backward.names,
            tuple(self._application(f"{function}.apply({', '.join(values)})")),
            forward.helpers | backward.helpers,
            made,
        )

    def _named(self) -> dict[str, str]:
        """Returns the autograd function's parameter for each argument of the forward program."""
        return {name: self.arguments[self.binding.arguments[name]] for name in self.program.arguments}

    def _application(self, call: str) -> Sequence[str]:
        names = self.results
        if self.binding.output == {"tensor": 0} or _is_plain(self.binding.output, len(names)):
            return [f"return {call}"]
        left = ", ".join(names.values())
        return [f"{left} = {call}", f"return {structure(self.binding.output, names)}"]

    def _forward(self, stem: str, backward: ProgramText) -> ProgramText:
        results = {name: {"tensor": number} for number, name in self.results.items()}
        names = Names([*results, *self.arguments.values()])
        for saved, _ in self.kept:
            results[names.take(as_identifier(saved.name))] = {"tensor": saved.result}
        used = "\n".join(map(str, backward.statements))

        def ending(texts: Mapping[int, str]) -> list[str]:
            tensors = [texts[saved.result] for saved, _ in self.kept if not saved.size]
            lines = [f"ctx.save_for_backward({', '.join(tensors)})"] if tensors else []
            lines += [f"{written} = {texts[saved.result]}" for saved, written in self.kept if saved.size]
            lines += [f"ctx.{name} = {name}" for name in self.scalars.values() if f"ctx.{name}" in used]
            differentiable = {gradient.result for gradient in self.gradients.header.incoming}
            constant = [texts[n] for n in self.results if n not in differentiable]
            lines += [f"ctx.mark_non_differentiable({', '.join(constant)})"] if constant else []
            return [*lines, f"return {', '.join(texts[number] for number in self.results)}"]

        binding = Binding(
            _in_order(self.arguments.values(), self._named()),
            {"dict": results},
            self.scalars,
            {self.arguments.get(path, path): spec for path, spec in self.binding.specs.items()},
        )
        parameters = ["ctx", *self.arguments.values(), *self.scalars.values()]
        return emit(
            self.program,
            binding,
            self.domain,
            f"{stem}_kernel",
            parameters,
            ending=ending,
            taken=_defined(backward),
        )

    def _backward(self, stem: str) -> ProgramText:
        header, program = self.gradients.header, self.gradients.program
        incoming = [self.incoming[gradient.result] for gradient in header.incoming]
        given = [*(written for _, written in self.kept), *incoming]
        inputs = [
            written for saved, written in self.kept if saved.name in self.arguments and not is_own(saved.name)
        ]
        passed = zip((*header.saved, *header.incoming), given, strict=True)
        specs: dict[str, Any] = {name: value.spec for value, name in passed if value.spec is not None}
        names = list(self._named().values())
        order = [names[place] for place in header.gradients]

        def ending(texts: Mapping[int, str]) -> list[str]:
            found = dict(zip(order, texts.values(), strict=True))
            every = [found.get(name, "None") for name in (*self.arguments.values(), *self.scalars.values())]
            return [f"return {', '.join(every)}"]

        binding = Binding(
            _in_order((*inputs, *incoming), dict(zip(program.arguments, given, strict=True))),
            {"dict": {f"grad_{name}": {"tensor": number} for number, name in enumerate(order)}},
            {name: f"ctx.{scalar}" for name, scalar in self.scalars.items()},
            specs,
        )
        written = emit(
            program,
            binding,
            self.domain,
            f"{stem}_backward_kernel",
            ["ctx", *given, *self.incoming.values()],
            ending=ending,
        )
        unpacked = [name for saved, name in self.kept if not saved.size]
        head = [f"{_targets(unpacked)} = ctx.saved_tensors"] if unpacked else []
        head += [f"{name} = {name}.contiguous()" for name in incoming]
        return replace(written, statements=(*head, *written.statements))


def _in_order(first: Iterable[str], values: Mapping[str, str]) -> dict[str, str]:
    """Returns a dict with some values first: new buffers lie on the device of the first tensor."""
    leading = list(first)
    order = {value: place for place, value in enumerate(leading)}
    return dict(sorted(values.items(), key=lambda item: order.get(item[1], len(leading))))


def _is_plain(output: Any, count: int) -> bool:
    """Whether an output is a plain tuple of the results in order, as an autograd function returns it."""
    return count > 1 and output == {"tuple": [{"tensor": number} for number in range(count)]}


def _defined(text: ProgramText) -> list[str]:
    """Returns the names of the functions that a program's kernels define."""
    heads = (kernel.partition("def ")[2].partition("(")[0] for kernel in text.kernels)
    return [head for head in heads if head]


def _targets(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)
