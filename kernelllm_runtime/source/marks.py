"""Finds the markers in one parsed file."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from kernelllm_runtime.source.names import inner_blocks
from kernelllm_runtime.source.resolve import Module, Origin, ProjectSources
from kernelllm_runtime.source.syntax import Chain, chain_of

MARKER = "triton_candidate"


@dataclass(frozen=True)
class Mark:
    """One use of the marker on a class."""

    name: str
    """The target's name in ids."""
    line: int
    kind: Literal["decorator", "call", "kernelbench"]
    expression: Chain
    """The dotted name by which the class is reached from the file's namespace."""
    node: ast.ClassDef | None
    """The class statement; None for a call."""
    options: tuple[ast.keyword, ...] = ()
    others: tuple[tuple[ast.keyword, ...], ...] = ()
    """The options of further markers of the same class in the file, which add ways to build it."""

    @property
    def kernel(self) -> str | None:
        """The dotted name of the adopted kernel module, if it is a string literal; else None."""
        value = next((k.value for k in self.options if k.arg == "kernel"), None)
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


@dataclass(frozen=True)
class Marks:
    """The markers of one file in order, and its problems as ``(line, sentence)``."""

    marks: tuple[Mark, ...]
    problems: tuple[tuple[int, str], ...]


def is_marker(project: ProjectSources, module: Module, node: ast.expr) -> bool:
    """Whether an expression (a decorator or a call) is the marker, bare or with arguments."""
    chain = chain_of(node.func if isinstance(node, ast.Call) else node)
    return chain is not None and any(_is_ours(origin) for origin in project.resolve(module, chain))


def _is_ours(origin: Origin) -> bool:
    # Any outside module may re-export the marker; the name itself stays.
    outside = origin.module is None or origin.module.path.parts[-2:] == ("kernelllm_runtime", "marker.py")
    return outside and origin.name.split(".")[-1] == MARKER


def find_marks(project: ProjectSources, module: Module) -> Marks:
    """Finds every class that the file marks, and every marker that cannot work."""
    finder = _Finder(project, module)
    finder.block(module.tree.body, (), certain=True)
    return finder.result()


def kernelbench_mark(module: Module) -> Mark | None:
    """Returns the ``Model`` of a file in KernelBench's form (``Model``, ``get_inputs``, ``get_init_inputs``)."""
    classes = [n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if classes and {"get_inputs", "get_init_inputs"} <= set(module.names):
        return Mark("Model", classes[-1].lineno, "kernelbench", ("Model",), classes[-1])
    return None


class _Finder:
    def __init__(self, project: ProjectSources, module: Module) -> None:
        self.project, self.module = project, module
        self.marks: list[Mark] = []
        self.problems: list[tuple[int, str]] = []

    def block(self, body: Iterable[ast.stmt], outer: Chain, certain: bool) -> None:
        """Searches a module, a class, or a block inside one, which is not ``certain`` to run."""
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                self.class_statement(statement, outer, certain)
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.function(statement)
                self.unreachable(statement.body, "a function")
            elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
                self.unreachable([statement], "a loop")
            elif blocks := inner_blocks(statement):
                for inner in blocks:
                    self.block(inner, outer, certain=False)
            elif isinstance(statement, ast.Expr | ast.Assign) and isinstance(statement.value, ast.Call):
                self.call(statement.value)

    def class_statement(self, node: ast.ClassDef, outer: Chain, certain: bool) -> None:
        chain = (*outer, node.name)
        if certain:  # the last definition wins, marked or not
            self.marks = [mark for mark in self.marks if mark.kind != "decorator" or mark.expression != chain]
        for decorator in node.decorator_list:
            if is_marker(self.project, self.module, decorator):
                options = decorator.keywords if isinstance(decorator, ast.Call) else []
                self.add(Mark(".".join(chain), decorator.lineno, "decorator", chain, node, tuple(options)))
        self.block(node.body, chain, certain)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Notes a marker on a function, which has no ``nn.Module`` to replace."""
        if any(is_marker(self.project, self.module, decorator) for decorator in node.decorator_list):
            text = f"{node.name} is a function, and {MARKER} marks classes"
            self.problems.append(
                (node.lineno, f"{text}; call it in the forward of an nn.Module and mark that")
            )

    def call(self, call: ast.Call) -> None:
        if not is_marker(self.project, self.module, call):
            # triton_candidate(inputs=...)(SomeClass)
            if not (isinstance(call.func, ast.Call) and is_marker(self.project, self.module, call.func)):
                return
            options = call.func.keywords
        else:
            options = call.keywords
        if not call.args:
            return  # a decorator that is stored in a variable, which the scan does not follow
        chain = chain_of(call.args[0])
        if chain is None:
            shown = ast.unparse(call.args[0])
            self.problems.append(
                (call.lineno, f"`{shown}` does not name a class; pass the class by its name")
            )
            return
        nested = any(isinstance(n, ast.ClassDef) for n in self._nodes(chain[0]))
        name = ".".join(chain) if nested else chain[-1]
        self.add(Mark(name, call.lineno, "call", chain, None, tuple(options)))

    def add(self, mark: Mark) -> None:
        if mark.kernel is None and any(k.arg == "kernel" and not _is_none(k.value) for k in mark.options):
            self.problems.append(
                (mark.line, f"kernel= of {mark.name} is not a string literal; write the module's dotted path")
            )
        self.marks.append(mark)

    def unreachable(self, body: Iterable[ast.stmt], place: str) -> None:
        for node in (n for statement in body for n in ast.walk(statement)):
            if isinstance(node, ast.ClassDef):
                if any(is_marker(self.project, self.module, d) for d in node.decorator_list):
                    text = f"class {node.name} is defined in {place} and cannot be a target"
                    self.problems.append((node.lineno, f"{text}; move it to module level"))
            elif isinstance(node, ast.Call) and node.args and is_marker(self.project, self.module, node):
                shown = ast.unparse(node.args[0])
                text = f"{MARKER}({shown}, ...) is called in {place} and makes no target"
                self.problems.append((node.lineno, f"{text}; call it at module level"))

    def result(self) -> Marks:
        """Returns one mark for each class, with a unique name: that with its kernel, or the last, with the others' options."""
        last = {mark.expression: mark for mark in self.marks}
        last |= {mark.expression: mark for mark in reversed(self.marks) if mark.kernel is not None}
        statements = {(mark.expression, mark.node) for mark in self.marks if mark.node is not None}
        for expression in list(last):
            several = sorted(node.lineno for chain, node in statements if chain == expression)
            if len(several) > 1:
                # Which one is the class is known only when the file runs, so a patch might edit the other.
                lines = " and ".join(map(str, several))
                text = f"{last.pop(expression).name} is defined and marked on lines {lines}; give each a name of its own"
                self.problems.append((several[-1], text))
        for mark in self.marks:
            kept = last.get(mark.expression, mark)
            if kept.line != mark.line:
                last[kept.expression] = replace(kept, others=(*kept.others, mark.options))
            if kept.kernel not in (mark.kernel, None) and mark.kernel is not None:
                text = f"{mark.name} has another kernel on line {kept.line}; keep one kernel="
                self.problems.append((mark.line, text))
        names = [mark.name for mark in last.values()]
        unique = (
            mark if names.count(mark.name) == 1 else replace(mark, name=".".join(mark.expression))
            for mark in last.values()
        )
        return Marks(tuple(sorted(unique, key=lambda mark: mark.line)), tuple(sorted(self.problems)))

    def _nodes(self, name: str) -> list[ast.AST]:
        return self.module.names[name].nodes if name in self.module.names else []


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
