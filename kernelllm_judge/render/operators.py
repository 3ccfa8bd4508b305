"""Replaces operators that a completion registers with ``torch.library`` by the functions that they call.

A registered operator belongs to the whole process, where it would replace another of its name. What it tells compilers
is of no use in a kernel module; calling the function computes the same.
"""

from __future__ import annotations

import ast

from kernelllm_judge.core.syntax import binding_counts, dotted
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.spelling import imports, resolved

_OPERATORS = frozenset({"torch.library.custom_op", "torch.library.triton_op"})
_WRAPPER = "torch.library.wrap_triton"
_FOR_COMPILERS = frozenset({"register_fake", "register_vmap"})
_GRADIENTS = "register_autograd"
_IMPORTED = frozenset({*_OPERATORS, _WRAPPER, *(f"torch.library.{n}" for n in (*_FOR_COMPILERS, _GRADIENTS))})


def without_operators(code: str) -> str:
    """Returns a completion's code with operators replaced; without any, the code as it is.

    Args:
        code: Python that parses.

    Raises:
        RenderError: an operator is registered in a way that has no form in a kernel module.
    """
    if "torch.library" not in code and "torch import library" not in code:
        return code
    tree = ast.parse(code)
    replacing = _Replacing(tree)
    body: list[ast.stmt] = []
    for statement in tree.body:
        body += replacing.top_level(statement)
    tree.body = [node for node in body if id(node) not in replacing.moved]
    return ast.unparse(ast.fix_missing_locations(replacing.visit(tree))) + "\n"


class _Replacing(ast.NodeTransformer):
    """Replaces the operators of one completion."""

    def __init__(self, tree: ast.Module) -> None:
        self.moved: set[int] = set()
        """Functions that have become methods."""
        self._names = binding_counts(tree)
        self._imported = imports(tree)
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self._operators: dict[str, str] = {}
        """The functions that are operators, by the operators' names."""
        for function in self._functions.values():
            for decorator in function.decorator_list:
                if (name := self._operator(decorator)) is not None:
                    self._operators[name] = function.name

    def top_level(self, statement: ast.stmt) -> list[ast.stmt]:
        """Returns what takes the place of a statement of the module."""
        match statement:
            case ast.ImportFrom(module=module, names=names):
                return [] if all(f"{module}.{alias.name}" in _IMPORTED for alias in names) else [statement]
            case ast.FunctionDef(decorator_list=decorators):
                for decorator in decorators:
                    if (registered := self._registers(decorator)) is not None:
                        return self._registration(decorator, *registered, statement)
                statement.decorator_list = [each for each in decorators if self._operator(each) is None]
            case ast.Expr(value=call) if (registered := self._registers(call)) is not None:
                return self._registration(call, *registered, None)
        return [statement]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replaces ``wrap_triton(kernel)``, and ``triton_op(name, function)``."""
        self.generic_visit(node)
        match self._path(node.func), node.args:
            case str(path), [kernel, *_] if path == _WRAPPER:
                return kernel
            case str(path), [_, function, *_] if path in _OPERATORS:
                return function
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replaces ``torch.ops.namespace.name``."""
        path = (dotted(node) or "").removesuffix(".default")
        if path.startswith("torch.ops."):
            name = path.removeprefix("torch.ops.").replace(".", "::", 1)
            if (function := self._operators.get(name)) is not None:
                if self._names[function] > 1:
                    raise RenderError(
                        f"Line {node.lineno}: the function of `{ast.unparse(node)}` shares its name "
                        f"`{function}` with something else."
                    )
                return ast.Name(function, ast.Load())
        return self.generic_visit(node)

    def _registration(
        self, call: ast.expr, operator: str, what: str, function: ast.FunctionDef | None
    ) -> list[ast.stmt]:
        """Returns what takes the place of registering something; ``function`` is one that it decorates."""
        if what in _FOR_COMPILERS:
            return []
        if what != _GRADIENTS or function is not None or not isinstance(call, ast.Call):
            raise RenderError(
                f"Line {call.lineno}: `{ast.unparse(call)[:60]}` has no form in a kernel module; "
                "call the function itself."
            )
        of_library = (self._path(call.func) or "").startswith("torch.library.")
        setup = [keyword.value for keyword in call.keywords if keyword.arg == "setup_context"]
        names = [dotted(each) or "" for each in [*call.args[of_library:], *setup]]
        arguments = self._functions[operator].args
        plain = not (arguments.kwonlyargs or arguments.vararg or arguments.kwarg)
        if not (plain and 1 <= len(names) <= 2 and all(name in self._functions for name in names)):
            raise RenderError(
                f"Line {call.lineno}: the gradients of `{operator}` are registered in a form that cannot be carried."
            )
        made = {f"_{operator}", f"_{operator}_function"}
        if made & self._names.keys():
            raise RenderError(
                f"Line {call.lineno}: the gradients of `{operator}` need names that the code uses: {sorted(made)}."
            )
        self._names.update(made)
        methods = [self._functions[name] for name in names]
        self.moved.update(map(id, methods))
        return _with_gradients(self._functions[operator], *methods)

    def _operator(self, decorator: ast.expr) -> str | None:
        """Returns the name of the operator that a decorator registers, or None."""
        match decorator:
            case ast.Call(func=func, args=[ast.Constant(value=str(name))]) if self._path(func) in _OPERATORS:
                return name
        return None

    def _registers(self, call: ast.expr) -> tuple[str, str] | None:
        """Returns the function, and what ``f.register_fake`` and the like register for it, or None."""
        owner, _, what = (self._path(call.func if isinstance(call, ast.Call) else call) or "").rpartition(".")
        if what.startswith("register_"):
            match call:
                case ast.Call(args=[ast.Constant(value=str(name)), *_]) if owner == "torch.library":
                    owner = self._operators.get(name, "")
                case ast.Call(args=[ast.Name(id=name), *_]) if owner == "torch.library":
                    owner = name
            if owner in self._operators.values():
                return owner, what
        return None

    def _path(self, node: ast.expr) -> str | None:
        """Returns a dotted name as it would be written without imports, or None."""
        return resolved(dotted(node) or "", self._imported) or None


def _with_gradients(
    operator: ast.FunctionDef, backward: ast.FunctionDef, setup: ast.FunctionDef | None = None
) -> list[ast.stmt]:
    """Returns an autograd function around an operator's function, which gets another name, and one that applies it."""
    name, inner = operator.name, f"_{operator.name}"
    names = ", ".join(each.arg for each in [*operator.args.posonlyargs, *operator.args.args])
    [cls, wrapper, nothing] = ast.parse(
        f"class {inner}_function(torch.autograd.Function):\n"
        f"    @staticmethod\n    def forward({names}):\n        return {inner}({names})\n"
        f"def {name}({ast.unparse(operator.args)}):\n    return {inner}_function.apply({names})\n"
        "def setup_context(ctx, inputs, output):\n    pass\n"
    ).body
    assert isinstance(cls, ast.ClassDef) and isinstance(nothing, ast.FunctionDef)
    for method, function in (("setup_context", setup or nothing), ("backward", backward)):
        decorators: list[ast.expr] = [ast.Name("staticmethod", ast.Load())]
        cls.body.append(ast.FunctionDef(method, function.args, function.body, decorators))
    operator.name = inner
    return [cls, wrapper]
