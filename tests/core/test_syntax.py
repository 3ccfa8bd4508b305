from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from kernelllm_judge.core import syntax

FUNCTION = """
@triton.jit(debug=True)
def outer(a, /, b, *rest, c: int = 1, d, **more):
    '''A docstring.'''
    import os.path, json as j
    from math import pi as circle
    total = a
    for i in b:
        total += [k for k in i][0]
    try:
        (found := total)
    except ValueError as error:
        print(error)
    match found:
        case {"x": [first, *others]}:
            del others
    def inner(p): return p
    class Local: field = 0
    return inner
"""


def statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def function() -> ast.FunctionDef:
    node = statement(FUNCTION)
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize(
    ("text", "chain"),
    [("a", ("a",)), ("a.b.c", ("a", "b", "c")), ("a().b", None), ("a[0].b", None), ("1", None)],
)
def test_dotted_names(text: str, chain: tuple[str, ...] | None) -> None:
    node = syntax.expression(text)
    assert syntax.chain_of(node) == chain
    assert syntax.dotted(node) == (chain and ".".join(chain))
    call = ast.Call(node, [], [])
    assert syntax.call_name(call) == ".".join(chain or ())


@pytest.mark.parametrize("value", [None, True, -3, 2.5, float("-inf"), "it's", (), (1, ("x", None))])
def test_literals_evaluate_to_their_value(value: object) -> None:
    assert syntax.is_literal(value)
    written = ast.unparse(syntax.literal(value))
    assert eval(written) == value


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1j, b"x", object(), (1, [2])])
def test_what_no_literal_is_written_for(value: object) -> None:
    assert not syntax.is_literal(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-(2 * 3 + 1) // 2", -4),
        ("9 % 4", 1),
        ("1 // 0", None),
        ("n + 1", None),
        ("True", None),
        ("1.0", None),
    ],
)
def test_integer_expressions(text: str, value: int | None) -> None:
    assert syntax.constant_int(syntax.expression(text)) == value


def test_parameters_and_defaults() -> None:
    arguments = function().args
    assert [p.arg for p in syntax.parameters(arguments)] == ["a", "b", "c", "d"]
    assert [p.arg for p in syntax.parameters(arguments, variadic=True)] == [
        "a",
        "b",
        "c",
        "d",
        "rest",
        "more",
    ]
    positional = statement("def f(a, b=1, /, c=2, *, d=3, e): pass")
    assert isinstance(positional, ast.FunctionDef)
    found = syntax.defaults(positional.args)
    assert {name: ast.unparse(node) for name, node in found.items()} == {"b": "1", "c": "2", "d": "3"}


@pytest.mark.parametrize(
    ("decorators", "expected"),
    [("@triton.jit", True), ("@jit(debug=True)", True), ("@numba.jit", False), ("", False)],
)
def test_triton_functions(decorators: str, expected: bool) -> None:
    assert syntax.is_jitted(statement(f"{decorators}\ndef f(): pass")) == expected


def test_docstrings_and_first_lines() -> None:
    node = function()
    assert [syntax.is_docstring(part) for part in node.body[:2]] == [True, False]
    assert (node.lineno, syntax.first_line(node), syntax.first_line(node.body[0])) == (3, 2, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os.path, json as j", {"os": (0, "os", None), "j": (0, "json", None)}),
        ("from ..a import b as c, d", {"c": (2, "a", "b"), "d": (2, "a", "d")}),
        ("from . import *", {"*": (1, "", "*")}),
    ],
)
def test_imports(text: str, expected: dict[str, tuple[int, str, str | None]]) -> None:
    node = statement(text)
    assert isinstance(node, ast.Import | ast.ImportFrom)
    assert {name: (i.level, i.module, i.name) for name, i in syntax.imports_of(node)} == expected


def test_names_that_are_read_and_stored() -> None:
    tree = ast.parse("x[y] = a.b + (lambda p: p)(z)\ndel w")
    assert syntax.read_names(tree) == {"x", "y", "a", "p", "z"}
    assert syntax.stored_names(ast.parse("x[y] = 1\na, b = c")) == {"a", "b"}


def test_names_bound_in_any_scope() -> None:
    parameters = {"a", "b", "c", "d", "rest", "more", "p"}
    assigned = {"total", "i", "k", "found", "error", "first", "others", "field"}
    without_imports = parameters | assigned | {"inner", "Local"}
    assert syntax.bound_names(function(), imports=False) == without_imports
    assert syntax.bound_names(function()) == without_imports | {"os", "j", "circle"}
    assert "outer" in syntax.bound_names(ast.Module([function()], []))


def test_names_assigned_in_the_own_scope() -> None:
    body = ast.Module(function().body, [])
    assert set(syntax.assigned_names(body)) == {"total", "i", "found", "error", "first", "inner", "Local"} | {
        "others"
    }
    assert list(syntax.assigned_names(function())) == ["outer"]


def test_free_names() -> None:
    assert syntax.free_name("x", {"y"}) == "x"
    assert syntax.free_name("x", {"x", "x_"}) == "x__"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RMSNorm", "rms_norm"),
        ("LlamaRMSNorm", "llama_rms_norm"),
        ("MLP", "mlp"),
        ("Conv2dBN", "conv2d_bn"),
        ("GELU_v2", "gelu_v2"),
        ("Outer._Inner", "outer_inner"),
        ("_Private", "private"),
        ("Größe", "größe"),
        ("SwiGLU", "swiglu"),
        ("GEGLU", "geglu"),
        ("GeGLU", "geglu"),
        ("GroupNormSiLU", "group_norm_silu"),
        ("BatchNormReLU", "batch_norm_relu"),
        ("Conv2DReLU6", "conv2d_relu6"),
        ("LeakyReLU", "leaky_relu"),
        ("KLDiv", "kl_div"),
        ("GELUMLP", "gelu_mlp"),
        ("GPT2MLP", "gpt2_mlp"),
        ("LoRALinear", "lora_linear"),
        ("XGLU", "xglu"),
        ("float32", "float32"),
        ("___", "module"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert syntax.snake_case(name) == expected


def test_renaming_swaps_names_once() -> None:
    shared = ast.Name("a", ast.Load())
    tree = ast.Module(
        [*ast.parse("def f(a, *b): return a.a + b").body, ast.Expr(shared), ast.Expr(shared)], []
    )
    syntax.rename(tree, {"a": "b", "b": "a"})
    assert ast.unparse(tree).split("\n") == ["def f(b, *a):", "    return b.a + a", "b", "b"]


def test_substitution_leaves_the_original_and_assigned_names() -> None:
    tree = ast.parse("x = x + y")
    changed = syntax.Substitute({"x": syntax.expression("a.b"), "y": ast.Constant(2)}).apply(tree)
    assert ast.unparse(changed) == "x = a.b + 2"
    assert ast.unparse(tree) == "x = x + y"


def test_emptied_blocks_stay_valid() -> None:
    class NoCalls(syntax.RemovingTransformer):
        def visit_Expr(self, node: ast.Expr) -> None:
            return None

    text = "def f():\n    if x:\n        g()\n    try:\n        g()\n    finally:\n        g()\nclass A:\n    g()"
    shorter = ast.unparse(NoCalls().visit(ast.parse(text)))
    compile(shorter, "<test>", "exec")
    assert "g()" not in shorter


def test_the_module_is_cheap_to_import() -> None:
    script = "import sys, kernelllm_judge.core.syntax; print(sorted({'torch', 'triton', 'pytest'} & set(sys.modules)))"
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"
