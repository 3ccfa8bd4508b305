"""Translates TorchInductor's output code, also as models write it, to a kernel module."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernelllm_judge.core.parts import Parts
from kernelllm_judge.core.records import Case, Domain
from kernelllm_judge.core.syntax import snake_case
from kernelllm_judge.render.describe import describe
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.inductor.autograd import Gradients, emit_both
from kernelllm_judge.render.inductor.dispatch import Region, conditions
from kernelllm_judge.render.inductor.emit import emit
from kernelllm_judge.render.inductor.merge import merge
from kernelllm_judge.render.inductor.model_output import read_model_output
from kernelllm_judge.render.inductor.program import Binding, Program
from kernelllm_judge.render.inductor.program_text import ProgramText
from kernelllm_judge.render.inductor.wrapper import read_program
from kernelllm_judge.render.lower import device_functions
from kernelllm_judge.render.rendered import Rendered
from kernelllm_judge.render.signature import with_target_parameters
from kernelllm_judge.render.undefined import with_imports
from kernelllm_judge.render.visible import reached, visible

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget

_SIGNS = re.compile(
    r"triton_helpers|reinterpret_tensor|empty_strided_cuda|async_compile\.triton|extern_kernels"
    r"|\[grid\(|=\s*call\(\[|assert_size_stride"
)


def is_inductor_code(source: str) -> bool:
    """Whether a text is TorchInductor's output code or code like it, with a ``call(args)``."""
    if sections.is_sections(source):
        return True
    return (
        re.search(r"^\s*def call\(", source, re.MULTILINE) is not None and _SIGNS.search(source) is not None
    )


def translate_inductor(source: str, live: LiveTarget) -> Rendered:
    """Translates Inductor's code to the parts of a kernel module.

    Args:
        source: the sections of an Inductor completion, or a module with kernels, ``call`` and ``ModelNew``.
        live: the target.

    Raises:
        RenderError: the text is cut off, reads attributes that the target lacks, or needs an operation
            that a kernel module may not use; the message names the line, the attribute or the operation.
    """
    if sections.is_sections(source):
        versions = [_from_section(section, live.parts) for section in sections.read(source)]
    else:
        versions = [
            _Version(program, binding, domain, "")
            for program, binding, domain in read_model_output(source, live)
        ]
    groups = _written(versions, _word(live.target.name), list(live.signature.parameters))
    body = _body(groups, live)
    names = [name for group in groups for name in group.written.names]
    domains = [version.domain for group in groups for version in group.versions]
    return Rendered(body, describe(live, names), tuple(domains))


@dataclass(frozen=True)
class _Version:
    """A program for one domain."""

    program: Program
    binding: Binding
    domain: Domain
    suffix: str
    """A word that distinguishes its functions from those of other cases."""
    gradients: Gradients | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Those of its case's named dimensions."""


@dataclass(frozen=True)
class _Group:
    """The versions that one text serves."""

    written: ProgramText
    versions: tuple[_Version, ...]
    suffix: str


def _from_section(section: sections.Section, parts: Parts) -> _Version:
    forward, _, backward = section.source.partition(sections.BACKWARD)
    program = read_program(forward)
    if len(program.arguments) != len(section.arguments):
        raise RenderError(
            f"The code of case {section.case.name} takes {len(program.arguments)} arguments; its header names"
            f" {len(section.arguments)}."
        )
    paths = zip(program.arguments, section.arguments, strict=True)
    arguments = {name: reached(path, parts) for name, path in paths}
    scalars = {name: reached(path, parts) for name, path in section.scalars.items()}
    domain = section.case.domain
    binding = Binding(arguments, section.output, scalars, visible(domain, parts))
    gradients = None
    if section.backward is not None:
        second = _with_launches(read_program(backward), section.backward.launches)
        gradients = Gradients(second, section.backward)
    program = _with_launches(program, section.launches)
    return _Version(program, binding, domain, _suffix(section.case), gradients, section.case.sizes)


def _with_launches(program: Program, launches: Mapping[str, Mapping[str, int]]) -> Program:
    """Returns a program whose kernels have the block sizes that their compiler chose."""
    kernels = {
        name: replace(kernel, chosen=launches.get(name, kernel.chosen))
        for name, kernel in program.kernels.items()
    }
    return replace(program, kernels=kernels)


def _suffix(case: Case) -> str:
    """Returns a word for a case, such as ``float32`` or ``long_bfloat16``."""
    return _word(case.name.removeprefix("default-") if case.name != "default" else case.dtype or case.name)


def _word(name: str) -> str:
    """Returns a name in snake case, in ASCII only, as PTX has no other letters."""
    return snake_case(re.sub(r"[^\x00-\x7f]", "_", name))


def _written(versions: Sequence[_Version], stem: str, parameters: Sequence[str]) -> list[_Group]:
    """Writes each distinct text once, with the versions that it serves; of several texts, names contain the case."""
    groups: list[_Group] = []
    for version in versions:
        written = _write(version, stem, parameters)
        for index, group in enumerate(groups):
            if (both := merge(group.written, written)) is not None:
                groups[index] = _Group(both, (*group.versions, version), group.suffix)
                break
        else:
            groups.append(_Group(written, (version,), version.suffix))
    return groups if len(groups) == 1 else [_named(group, stem, parameters) for group in groups]


def _named(group: _Group, stem: str, parameters: Sequence[str]) -> _Group:
    """Writes a group's text anew, with its case in the names."""
    texts = [_write(version, f"{stem}_{group.suffix}", parameters) for version in group.versions]
    return replace(group, written=functools.reduce(lambda one, other: merge(one, other) or one, texts))


def _write(version: _Version, stem: str, parameters: Sequence[str]) -> ProgramText:
    program, binding, domain = version.program, version.binding, version.domain
    if version.gradients is not None:
        return emit_both(program, version.gradients, binding, domain, stem, _function_name(stem))
    return emit(program, binding, domain, f"{stem}_kernel", parameters)


def _function_name(stem: str) -> str:
    """Returns the name of an autograd function: ``RmsNormFunction``."""
    return f"{''.join(word[:1].upper() + word[1:] for word in stem.split('_'))}Function"


def _body(groups: Sequence[_Group], live: LiveTarget) -> str:
    helpers = frozenset[str]().union(*(g.written.helpers for g in groups))
    parts = device_functions(helpers)
    for group in groups:
        parts += group.written.kernels
        if group.written.function is not None:
            parts.append(group.written.function.text())
    if len(groups) == 1:
        parts.append(_forward(groups[0].written.lines(), live, groups[0].versions[0].domain))
    else:
        parts += _dispatching(groups, live)
    return with_imports("\n\n\n".join(part.strip("\n") for part in parts) + "\n")


def _dispatching(groups: Sequence[_Group], live: LiveTarget) -> list[str]:
    """Writes a function per group, and a ``forward`` that chooses between them by domain."""
    tests = conditions(
        [[Region(v.binding.specs, v.sizes, v.domain.dims) for v in group.versions] for group in groups]
    )
    names = [p.name for p in live.signature.parameters.values()]
    lines = []
    for group, test in zip(groups, tests, strict=True):
        call = f"return _forward_{group.suffix}({', '.join(['self', *names])})"
        lines.append(f"if {test}:\n    {call}" if group is not groups[-1] else call)
    functions = [
        f"def _forward_{group.suffix}({', '.join(['self', *names])}):\n"
        + textwrap.indent("\n".join(group.written.lines()), "    ")
        for group in groups
    ]
    return [*functions, _forward(lines, live, groups[0].versions[0].domain)]


def _forward(statements: Sequence[str], live: LiveTarget, domain: Domain) -> str:
    """Writes ``forward`` with the parameters of the target's."""
    variadic = (live.signature.parameters[p].kind.name.startswith("VAR") for p in live.signature.parameters)
    plain = [p for p, skip in zip(live.signature.parameters, variadic, strict=True) if not skip]
    function = ast.parse(f"def forward({', '.join(['self', *plain])}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function = with_target_parameters(function, live.signature, list(domain.inputs))
    head = ast.unparse(function).partition("\n")[0]
    return head + "\n" + textwrap.indent("\n".join(statements), "    ")
