"""Assembles a target's code into one module that runs by itself."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable
from typing import Any

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.core.records import Case
from kernelllm_judge.core.syntax import chain_of
from kernelllm_judge.target.errors import TargetError
from kernelllm_judge.target.live import LiveTarget
from kernelllm_runtime.source.names import module_names
from pytest_kernelllm.models.prompt.constants import Constants
from pytest_kernelllm.models.prompt.errors import NotPortable, PromptError
from pytest_kernelllm.models.prompt.init_inputs import constructor_call, get_init_inputs, positional_values
from pytest_kernelllm.models.prompt.inputs import get_inputs
from pytest_kernelllm.models.prompt.observe import Observer
from pytest_kernelllm.models.prompt.origins import depends_on_mode
from pytest_kernelllm.models.prompt.reach import Reach
from pytest_kernelllm.models.prompt.scopes import free_roots
from pytest_kernelllm.models.prompt.sources import Sources
from pytest_kernelllm.models.prompt.units import in_order, name_all, source


def standalone(live: LiveTarget, case: Case) -> str:
    """Writes a module with ``Model``, ``get_inputs`` and ``get_init_inputs``; see the package's ``standalone``.

    Raises:
        PromptError: something cannot be copied.
    """
    try:
        return _module(live, case)
    except (NotPortable, TargetError) as refusal:
        where = f"{live.target.path}: {live.target.name}"
        text = str(refusal).removeprefix(where).lstrip(": ").rstrip(".")
        raise PromptError(f"{where} cannot be written as one module: {text}.") from refusal


def _module(live: LiveTarget, case: Case) -> str:
    call = constructor_call(live, case)
    values = positional_values(live, call)
    observer = Observer(live, case, call)
    passed = {"forward": list(nested(case.domain.inputs)), "__init__": list(values)}
    constants = Constants(Sources(), observer)
    while True:
        reach = _reached(live, case, values, passed, constants)
        if not constants.stale:
            break
        constants.restart()
    name_all([*reach.imports, *reach.units])
    text = _text(reach, _notes(case, reach, observer))
    _check(text)
    return text


def _reached(
    live: LiveTarget, case: Case, values: dict[str, Any], passed: dict[str, list[str]], constants: Constants
) -> Reach:
    """Collects everything that the class, its constructor arguments and its inputs reach."""
    reach = Reach(live.cls, passed, constants)
    reach.model()

    def elsewhere(parameter: str) -> Iterable[str]:
        return _read_of(parameter, (unit.node for unit in reach.units))

    inputs = get_inputs(live, case, constants.sources)
    reads = constants.observer.reads
    init = get_init_inputs(live, values, reads, reach.mentioned.__contains__, elsewhere, constants.sources)
    reach.add("get_inputs", inputs.node, inputs.module, inputs.overlay)
    reach.add("get_init_inputs", init.node, init.module, init.overlay)
    return reach


def _text(reach: Reach, notes: list[str]) -> str:
    lines = {statement.statement() for statement in reach.imports} | {
        f"import {name}" for name in reach.submodules
    }
    plain = sorted(line for line in lines if line.startswith("import"))
    members = sorted(lines - set(plain))
    text = "\n".join([*plain, *members])
    before_constant = False
    for unit in in_order(reach.units):
        constant = isinstance(unit.node, ast.Assign)
        text += "\n" if constant and before_constant else "\n\n" if constant else "\n\n\n"
        if unit.name == "get_inputs":
            text += "".join(f"# {note}\n" for note in notes)
        text += source(unit)
        before_constant = constant
    return text.lstrip("\n") + "\n"


def _notes(case: Case, reach: Reach, observer: Observer) -> list[str]:
    """Lists what a caller must do beyond KernelBench's convention."""
    dtype = case.dtype or "float32"
    notes = []
    if dtype != "float32":
        notes.append(f"Parameters have the dtype of the inputs: Model(*get_init_inputs()).to(torch.{dtype}).")
    if "training" in reach.mentioned or depends_on_mode(observer.module):
        notes.append(f"Called in {'training' if case.domain.training else 'evaluation'} mode.")
    return notes


def _read_of(parameter: str, nodes: Iterable[ast.AST]) -> Iterable[str]:
    """Returns the attributes of a parameter that code reads, also through ``self``: ``config.a``, ``self.config.b``."""
    found: dict[str, None] = {}
    for node in nodes:
        for part in ast.walk(node):
            chain = chain_of(part) if isinstance(part, ast.Attribute) else None
            if chain and parameter in chain[:-1] and chain.index(parameter) <= 1:
                found[chain[chain.index(parameter) + 1]] = None
    return found


def _check(text: str) -> None:
    """Checks that every name in a module is defined.

    Raises:
        NotPortable: a name is not defined, or the text is not Python.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise NotPortable(
            f"its code does not stay Python when it is moved (line {error.lineno}: {error.msg})"
        ) from None
    bound, _ = module_names(tree)
    for name in sorted(free_roots(tree) - bound.keys()):
        if not hasattr(builtins, name) and name not in ("__class__", "__name__"):
            raise NotPortable(f"nothing defines `{name}`; define or import it at the top of its module")
