"""Translates an answer with kernels, wrapper functions and a ``ModelNew`` class to a kernel module.

Only the form changes: what ``ModelNew.forward`` reaches is kept, the class becomes top-level functions on the
target's instance, names are spelt uniformly and devices follow the inputs. Only the constructor runs, in a worker.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.core.syntax import (
    bound_names,
    dotted,
    first_line,
    free_name,
    imports_of,
    is_jitted,
    literal,
)
from kernelllm_judge.render.describe import describe, left_to_torch
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.extract import parse
from kernelllm_judge.render.modelnew.attribute_mapper import AttributeMapper
from kernelllm_judge.render.modelnew.autograd import as_functions
from kernelllm_judge.render.modelnew.devices import OnInputDevice, is_device, tensor_parameter
from kernelllm_judge.render.modelnew.functions import entry, model_texts
from kernelllm_judge.render.modelnew.instances import Instance, instances
from kernelllm_judge.render.modelnew.matches import MOST, FirstValues, Match, matches
from kernelllm_judge.render.modelnew.settings import leaves, modules_of, numbers_of
from kernelllm_judge.render.modelnew.spelling import Canonical, imports, with_plain_reads, without_annotations
from kernelllm_judge.render.rendered import Rendered
from kernelllm_judge.render.signature import with_target_parameters
from kernelllm_judge.render.undefined import STANDARD, require_defined, with_imports

if TYPE_CHECKING:
    from kernelllm_judge.constructors import Constructors
    from kernelllm_judge.target.live import LiveTarget

_RESERVED = frozenset({"forward", "SUPPORTS", "self"})
_INSTALLED = frozenset({"torch", "triton", *STANDARD})
_SET_IN: Mapping[type[ast.stmt], str] = {ast.If: "under a condition", ast.Try: "in a `try` statement"}
"""Where a name is set that may hold other values elsewhere; in a loop, otherwise."""


def translate_modelnew(source: str, live: LiveTarget, constructors: Constructors) -> list[Rendered]:
    """Translates an answer to the parts of kernel modules, the likeliest first.

    There are several where it is not certain which weights of the target the answer's own stand for.

    Args:
        source: Python code with a class ``ModelNew``.
        live: the target; its cases' domains become ``SUPPORTS``.
        constructors: run the answer's constructor.

    Raises:
        launching.ServerFailed: no worker can start.
        RenderError: the constructor fails, or something has no form in a kernel module; the message names the attribute or the line.
    """
    tree = parse(source)
    if isinstance(tree, str):
        raise RenderError(f"The code does not parse: {tree}.")
    if (function := entry(tree)) is not None:
        texts = model_texts(function, live)
        every = [
            one for text in texts for one in translate_modelnew(f"{source}\n\n\n{text}", live, constructors)
        ]
        return list({one.body: one for one in every}.values())[:MOST]
    answer = _Answer(source, with_plain_reads(without_annotations(tree)), live, constructors)
    domains = tuple(case.domain for case in live.cases)
    found: dict[str, Rendered] = {}
    errors: list[RenderError] = []
    for match in answer.matches():
        try:
            body = answer.body(match)
            require_defined(body)  # here, so that one match does not cost the others
        except RenderError as error:
            errors.append(error)
        else:
            found.setdefault(
                body, Rendered(body, describe(live, answer.kernels, left_to_torch(body, live)), domains)
            )
    if not found:
        raise errors[0]
    return list(found.values())


class _Answer:
    """The code of one completion and its translation."""

    def __init__(self, source: str, tree: ast.Module, live: LiveTarget, constructors: Constructors) -> None:
        self.kernels: list[str] = []
        self._match = Match()
        self._lines, self._live = source.split("\n"), live
        self._domain = live.cases[0].domain
        tree = _without_tries(tree)
        self._imports = imports(tree)
        self._top = _definitions(tree if self._domain.grad else as_functions(tree, self._imports))
        renamed = self._top.get("ModelNew")
        if isinstance(renamed, ast.Assign) and isinstance(renamed.value, ast.Name):  # `ModelNew = FastModel`
            self._top["ModelNew"] = self._top.get(renamed.value.id, renamed)
        if not isinstance(self._top.get("ModelNew"), ast.ClassDef):
            raise RenderError("The completion defines no class `ModelNew`.")
        _refuse_patches(tree, self._top)
        self._devices = {n for n, d in self._top.items() if isinstance(d, ast.Assign) and is_device(d.value)}
        self._renamed = {name: free_name(f"_{name}", self._top) for name in _RESERVED & set(self._top)}
        given = live.init_arguments(live.cases[0])
        made = constructors.construct(source, given.args, given.kwargs)
        if made.error:
            raise RenderError(f"ModelNew cannot be built: {made.error}.")
        numbers = {
            name: literal(value)
            for name, value in numbers_of(made.reply).items()
            if isinstance(self._top.get(name), ast.Assign | ast.AnnAssign)
        }
        self._spelling = Canonical(self._imports, self._top, self._renamed, numbers)
        modules = modules_of(made.reply, leaves([*given.args, *given.kwargs.values()]))
        self._instances = instances(self._top, modules, {*self._top, *_RESERVED})

    def matches(self) -> list[Match]:
        """Returns what the answer's own weights and layers may stand for."""
        return matches(self._instances, self._domain.attributes, FirstValues(self._live))

    def body(self, match: Match) -> str:
        """Writes everything that ``forward`` reaches in the order of the source, then methods, then ``forward``."""
        self._match = match
        self.kernels = []
        new_names = {self._renamed.get(name, name): name for name in self._top}
        methods = {new: (i, name) for i in self._instances.values() for name, new in i.functions.items()}
        kept: dict[str, ast.stmt] = {}
        own: dict[str, ast.stmt] = {"forward": self._method(*methods["forward"])}
        todo = [own["forward"]]
        while todo:
            for used in _used_globals(todo.pop()):
                if used in methods and used not in own:
                    todo.append(own.setdefault(used, self._method(*methods[used])))
                elif (name := new_names.get(used)) and name not in kept:
                    todo.append(kept.setdefault(name, self._statement(name)))
        definitions = {id(self._top[name]): name for name in self._top if name in kept}
        texts = [
            *(self._text(name, kept[name]) for name in definitions.values()),
            *(ast.unparse(own[name]) for name in methods if name in own and name != "forward"),
            ast.unparse(own["forward"]),
        ]
        return with_imports("\n\n\n".join(texts) + "\n")

    def _statement(self, name: str) -> ast.stmt:
        node = self._top[name]
        if isinstance(node, ast.ClassDef):
            return self._class(copy.deepcopy(node))
        if not isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign):
            where = _SET_IN.get(type(node), "in a loop")
            raise RenderError(f"Line {node.lineno}: `{name}` is set {where} at top level.")
        new = self._spelling.statement(copy.deepcopy(node))
        if isinstance(new, ast.FunctionDef):
            new.name = self._renamed.get(name, name)
            if is_jitted(new):
                self.kernels.append(new.name)
                return new
            new = OnInputDevice(tensor_parameter(new), self._devices).visit(new)
        return ast.fix_missing_locations(new)

    def _class(self, cls: ast.ClassDef) -> ast.ClassDef:
        """Translates a class, such as an autograd function where gradients are needed."""
        for index, node in enumerate(cls.body):
            new = self._spelling.statement(node)
            tensor = tensor_parameter(new) if isinstance(new, ast.FunctionDef) else None
            cls.body[index] = OnInputDevice(tensor, self._devices).visit(new)
        cls.bases = [self._spelling.visit(base) for base in cls.bases]
        return ast.fix_missing_locations(cls)

    def _method(self, instance: Instance, name: str) -> ast.FunctionDef:
        """Translates a method to a function on the target's instance."""
        new = self._spelling.statement(copy.deepcopy(instance.methods[name]))
        assert isinstance(new, ast.FunctionDef)
        tensor = tensor_parameter(new)
        new.name = instance.functions[name]
        if new.name == "forward":
            inputs = [n for n, spec in self._domain.inputs.items() if isinstance(spec, TensorSpec)]
            new = with_target_parameters(new, self._live.signature, self._domain.inputs)
            tensor = inputs[0] if inputs else tensor
        OnInputDevice(tensor, self._devices).visit(new)
        mapping = AttributeMapper(
            instance, self._instances, self._domain, self._live.parts, self._match, tensor
        )
        mapping.generic_visit(new)
        return ast.fix_missing_locations(new)

    def _text(self, name: str, new: ast.stmt) -> str:
        """Writes a definition; an unchanged one keeps the completion's text with its comments."""
        old = self._top[name]
        if ast.dump(old) == ast.dump(new):
            text = "\n".join(self._lines[first_line(old) - 1 : old.end_lineno])
            again = parse(text)
            if isinstance(again, ast.Module) and [ast.dump(s) for s in again.body] == [ast.dump(old)]:
                return text
        return ast.unparse(ast.fix_missing_locations(new))


def _without_tries(tree: ast.Module) -> ast.Module:
    """Writes the body of a ``try`` at top level in its place, in place, where it only imports what is installed and sets literals."""
    tree.body = [
        part
        for node in tree.body
        for part in ([*node.body, *node.orelse] if isinstance(node, ast.Try) and _succeeds(node) else [node])
    ]
    return tree


def _succeeds(node: ast.Try) -> bool:
    """Whether nothing in the body of a ``try`` can fail, as far as a kernel module may have it at all."""
    return not node.finalbody and all(
        {found.module.partition(".")[0] for _, found in imports_of(part)} <= _INSTALLED
        if isinstance(part, ast.Import | ast.ImportFrom)
        else isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant)
        for part in node.body
    )


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Returns the last statement that binds each top-level name."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names = {node.name}
        elif isinstance(node, ast.Import | ast.ImportFrom | ast.Expr):
            continue
        else:
            names = bound_names(node, imports=False)
        for name in names:
            found.pop(name, None)  # a later definition also takes the later place
            found[name] = node
    return found


def _used_globals(node: ast.stmt) -> Iterator[str]:
    """Yields the names that a top-level statement reads and does not bind itself."""
    local = bound_names(node) if isinstance(node, ast.FunctionDef) else set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id not in local:
            yield inner.id


def _refuse_patches(tree: ast.Module, top: Mapping[str, ast.stmt]) -> None:
    """Checks that a text does not set attributes of torch or of its own definitions at top level."""
    for node in tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else []:
            name = dotted(target) or ""
            root = name.partition(".")[0]
            if "." in name and not name.startswith("torch.backends.") and root in {*top, "torch", "nn", "F"}:
                raise RenderError(f"Line {node.lineno}: it sets `{name}`, which a kernel module cannot.")
