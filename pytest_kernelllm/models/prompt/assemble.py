"""Writes a target as one text in KernelBench's form."""

from __future__ import annotations

import ast
import sys

from torch import nn

from kernelllm_judge.core.records import Case
from kernelllm_judge.core.syntax import rename
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.models.prompt.files import PromptError, read_file
from pytest_kernelllm.models.prompt.inputs import constructor_values, init_inputs, inputs, words_of
from pytest_kernelllm.models.prompt.program import Part, Program
from pytest_kernelllm.models.prompt.shorten import positional

_RESERVED = ("Model", "get_inputs", "get_init_inputs")

_MOST_PARTS = 40
"""Of a module with more lines when printed, the parts are not listed."""


def written(live: LiveTarget, case: Case, longest: int) -> str:
    """Writes a module with ``Model``, ``get_inputs`` and ``get_init_inputs``; see the package's ``standalone``."""
    where = f"{live.target.path}: {live.target.name}"
    try:
        return _text(live, case, longest)
    except (PromptError, TargetError) as refusal:
        text = str(refusal).removeprefix(where).lstrip(": ").rstrip(".")
        raise PromptError(f"{where} cannot be written as one module: {text}.") from refusal


def _text(live: LiveTarget, case: Case, longest: int) -> str:
    name = _name(live.cls)
    values = constructor_values(live)
    own = read_file(live.cls.__module__)
    if own is None or name not in own.binds:
        raise PromptError("its class has no source file; write it in a module")
    mentioned = frozenset[str]()
    while True:  # a method that is kept may mention others
        program = Program(own, mentioned, longest)
        program.follow(name)
        init = init_inputs(values, program.reads, program.refer)
        found = mentioned | program.words() | words_of(values.values())
        if found == mentioned:
            break
        mentioned = found
    made = ", ".join(inputs(live, case, program.refer))
    parts = _renamed(program.parts, name)
    whole = "..." not in init and not any(part.comment for part in parts)
    notes = _notes(live.build(case), case, program, whole)
    functions = [
        Part(ast.parse(f"def get_inputs():\n    return [{made}]").body[0], notes),
        Part(ast.parse(f"def get_init_inputs():\n    return {init}").body[0]),
    ]
    return _laid_out(set(program.imports.values()), [*parts, *functions])


def _name(cls: type[nn.Module]) -> str:
    """Returns the name at the top of a class's module that means the class."""
    namespace = vars(sys.modules.get(cls.__module__, object))
    found = [name for name, value in namespace.items() if value is cls]
    if not found:
        raise PromptError("its class is not at the top of its module; move it there")
    return cls.__name__ if cls.__name__ in found else found[0]


def _renamed(parts: list[Part], name: str) -> list[Part]:
    """Calls a class ``Model``, and what had a name with a meaning in this form otherwise."""
    names = {taken: f"{taken}_" for taken in _RESERVED} | {name: "Model"}
    for part in parts:
        node = part.node
        if isinstance(node, ast.ClassDef) and node.name == name:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "forward"):
                    positional(method.args)
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            node.name = names.get(node.name, node.name)
        rename(node, names)
    return parts


def _notes(module: nn.Module, case: Case, program: Program, whole: bool) -> str:
    """Says what a caller must do beyond KernelBench's convention, and what parts a module has if not all is shown."""
    notes = []
    printed = "" if whole else repr(module)
    if 1 < len(printed.splitlines()) < _MOST_PARTS:
        notes.append(f"Model(*get_init_inputs()) has these parts: {printed}")
    if case.dtype not in (None, "float32"):
        notes.append(
            f"Parameters have the dtype of the inputs: Model(*get_init_inputs()).to(torch.{case.dtype})."
        )
    other = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase)
    if "training" in program.words() or any(isinstance(part, other) for part in module.modules()):
        notes.append(f"Called in {'training' if case.domain.training else 'evaluation'} mode.")
    return "\n".join(notes)


def _laid_out(imports: set[str], parts: list[Part]) -> str:
    text = "\n".join(sorted(imports, key=lambda line: (not line.startswith("import"), line)))
    constant = False
    for part in parts:
        before, constant = constant, isinstance(part.node, ast.Assign)
        text += "\n" if constant and before else "\n\n" if constant else "\n\n\n"
        text += "".join(f"# {line}\n" for line in part.comment.splitlines())
        written = ast.unparse(part.node)
        text += written.replace(":\n\n", ":\n", 1) if isinstance(part.node, ast.ClassDef) else written
    return text.lstrip("\n") + "\n"
