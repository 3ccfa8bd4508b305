"""The digest of a program: no formatter changes it, every edit does."""

import ast
import hashlib

import pytest

from kernelllm_judge.core.kernel_module import Provenance, signed, unmodified, with_figures
from kernelllm_judge.core.program import NotPlain, _pieces, parse, plain_text, program_digest, program_name

TEXT = '''"""A module."""

import torch
import triton
import triton.language as tl

SUPPORTS = ({"inputs": {"x": ("float32", ("n", 64))}, "dims": {"n": (1, 64)}},)
LIMIT = 0xFF


@triton.jit
def a_kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Does nothing."""
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.50e-3 * (-offsets), mask=offsets < n)  # why


def forward(self, x, *, y=None, **rest):
    for i, (a, b) in enumerate(rest.items()):
        del (a, b)
    text = f"{x!r:>{len(rest)}} {{}}" "tail" u"é"
    if not 0 < len(text) <= LIMIT:
        raise ValueError("a" "b")
    return x if y is None else [*x, 1, True, 1.0, b"1", ..., None]
'''

LAYOUTS = {
    "line ends": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: text.replace("\n\n", "\n\n\n").rstrip("\n"),
    "comments": lambda text: "# a licence\n" + text.replace("  # why", "  # because"),
    "numbers": lambda text: text.replace("0xFF", "255").replace("1.50e-3", "0.0015"),
    "quotes": lambda text: text.replace('"float32"', "'float32'").replace('"a" "b"', "'ab'"),
    "parentheses": lambda text: text.replace("del (a, b)", "del a, b").replace("(-offsets)", "-offsets"),
    "trailing commas": lambda text: text.replace("len(text)", "len(\n        text,\n    )"),
    "prefixes": lambda text: text.replace('u"é"', '"é"'),
    "docstrings": lambda text: text.replace('"""A module."""', "'''A module.\n'''"),
    "no docstring": lambda text: text.replace('    """Does nothing."""\n', ""),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_does_not_count(layout) -> None:
    changed = LAYOUTS[layout](TEXT)
    assert changed != TEXT and program_digest(changed) == program_digest(TEXT)


def edits() -> list[str]:
    """The program with each of its names, literals and operators changed in turn, and each statement left out."""
    found = []
    for index in range(len(list(ast.walk(ast.parse(TEXT))))):
        tree = ast.parse(TEXT)
        node = list(ast.walk(tree))[index]
        if isinstance(node, ast.Name):
            node.id += "_"
        elif isinstance(node, ast.arg):
            node.arg += "_"
        elif isinstance(node, ast.Constant) and not isinstance(node.value, str):
            node.value = "other"
        elif isinstance(node, ast.Constant) and "A module" not in node.value and "Does" not in node.value:
            node.value += "_"
        elif isinstance(node, ast.FunctionDef | ast.For | ast.If | ast.Module):
            del node.body[-1]
            node.body = node.body or [ast.Pass()]
        elif isinstance(node, ast.BinOp):
            node.op = ast.FloorDiv()
        elif isinstance(node, ast.keyword) and node.arg:
            node.arg += "_"
        elif isinstance(node, ast.Attribute):
            node.attr += "_"
        else:
            continue
        found.append(ast.unparse(ast.fix_missing_locations(tree)))
    return found


def test_every_edit_counts() -> None:
    digests = [program_digest(text) for text in (TEXT, *edits())]
    assert len(digests) > 70 and len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = True"),
        ("x = 1", "x = 1.0"),
        ("x = '1'", "x = b'1'"),
        ("x = None", "x = ..."),
        ("f(a, *b)", "f(*a, b)"),
        ("f(**a)", "f(a)"),
        ("x = {**a}", "x = {a}"),
        ("def f(a, /): pass", "def f(a): pass"),
        ("def f(*, a, b=1): pass", "def f(*, a=1, b): pass"),
        ("x = [a, [b]]", "x = [[a], b]"),
        ("x = f'{a}'", "x = f'{a!s}'"),
        ("if a:\n  b\n  c", "if a:\n  b\nc"),
        ("from . import a", "from .. import a"),
        ("import a", "import a as b"),
        ("x = 'a'\n'b'", "x = 'a'"),
        ("del a, b", "del b, a"),
        ("x = 'Name'", "x = Name"),
        ("a = (b := c)", "a = b == c"),
    ],
)
def test_what_is_alike_is_not_the_same(one, other) -> None:
    assert program_digest(one) != program_digest(other)


def test_it_is_the_same_under_every_version_of_python() -> None:
    assert program_digest(TEXT) == "0984387448b218b852acc6edd899154a7989a2902d31c7cfe67433e7795ed850"


def test_long_integers_deep_nesting_and_halves_of_surrogates_are_digested() -> None:
    deep = "x = " + " + ".join("a" for _ in range(900))
    texts = ["x = 0x" + "f" * 5000, deep, "x = '\\ud800'"]
    assert len({program_digest(text) for text in texts}) == 3


@pytest.mark.parametrize(
    "mention",
    [
        "doc = forward.__doc__",
        "doc = forward.__\uff44oc__",
        'doc = getattr(forward, "__doc__")',
        'doc = "{0.\\x5f_doc__}".format(forward)',
        'globals()["__doc__"]',
    ],
)
def test_docstrings_count_where_they_can_be_read(mention) -> None:
    text = f"{TEXT}{mention}\n"
    assert program_digest(text.replace("Does nothing", "Does more")) != program_digest(text)


def test_a_text_that_triton_would_take_for_the_kernel_counts() -> None:
    """Triton reads a kernel's text from the first line that begins as a function, and may find it in a string."""
    judged = '@note("\\ndef a(x):\\n  evil(x)\\nr=")\n@jit\ndef a(x):\n    pass\n'
    spread = '@note("""\ndef a(x):\n  evil(x)\nr=""")\n@jit\ndef a(x):\n    pass\n'
    assert ast.dump(ast.parse(judged)) == ast.dump(ast.parse(spread))
    assert program_digest(judged) != program_digest(spread)
    inner = 'if on:\n    @jit\n    def a(x):\n        """One."""\n'
    assert program_digest(inner) != program_digest(inner.replace("One.", "\ndef a(x):\n    evil(x)\n"))


_KERNEL = """
@jit
def k(x):
    if "a\\n \\nb" == NAME:
        one(x)
    # \"""
"""
_DOCSTRING = """
def k \\
(x):
    two(x)
    \"""
"""

RELAID = {
    "empty lines in a string": (_KERNEL, _KERNEL.replace('"a\\n \\nb"', '"""a\n \nb"""')),
    "indented lines in a string": (
        'if on:\n    @jit\n    def k():\n        f("""a\n        b""")\n',
        'if on:\n  @jit\n  def k():\n    f("""a\n        b""")\n',
    ),
    "indented pieces of an f-string": (
        'if on:\n    @jit\n    def k(c):\n        f(f"{c}\\n     b")\n',
        'if on:\n    @jit\n    def k(c):\n        f(f"""{c}\n     b""")\n',
    ),
    "a function in a docstring, cut by a backslash": (
        _KERNEL,
        _KERNEL.replace("(x):\n", f"(x):\n    r'''{_DOCSTRING}'''\n", 1),
    ),
    "a nested function cut by a backslash": (
        "@jit\ndef k(x):\n    def g(y):\n        pass\n",
        "@jit\ndef k(x):\n    def\\\n g(y):\n        pass\n",
    ),
    "a tab after def": ("@jit\ndef k(x):\n    pass\n", "@jit\ndef\tk(x):\n    pass\n"),
    "a decorator below its sign": (
        "@jit\ndef k(): pass\n",
        "@(\n    # lambda x\n    jit\n)\ndef k(): pass\n",
    ),
    "a comment at the margin": (
        "if on:\n    @jit\n    def k():\n        pass\n",
        "if on:\n    @jit\n    def k():\n# why\n        pass\n",
    ),
}


@pytest.mark.parametrize("layout", RELAID)
def test_layout_counts_where_triton_would_read_another_program(layout) -> None:
    one, other = RELAID[layout]
    assert list(_pieces(parse(one))) == list(_pieces(parse(other)))
    assert program_digest(one) != program_digest(other)


def test_a_program_whose_layout_counts_keeps_its_digest_below_a_header() -> None:
    body = "def forward(self, x):\n    '''Doubles.'''\n    return forward.__doc__\n"
    kernel = signed(body, Provenance("a.py::M", "0" * 64, "g"))
    assert unmodified(kernel) and unmodified(with_figures(kernel, {"verified": "today"}))
    assert program_digest(kernel) == program_digest(body)
    assert not unmodified(kernel.replace("Doubles", "Halves"))


def test_a_text_that_spells_a_syntax_tree_does_not_get_its_name() -> None:
    tree = "\n".join(_pieces(parse(TEXT)))
    assert hashlib.sha256(tree.encode()).hexdigest() == program_digest(TEXT) != program_name(tree)


@pytest.mark.parametrize(
    "content",
    [
        b"# coding: latin-1\nx = 1\n",
        b"# a\n# -*- encoding=utf-7 -*-\nx = 1\n",
        b"\xef\xbb\xbfx = 1\n",
        b"x = '\xff'\n",
        b"# a\rimport os\n",
        b"x = 1\x0c\n",
        b"x = 1\x00\n",
        "x = 1  # \u2028import os\n".encode(),
        "x = 1  # \x85import os\n".encode(),
        b"# coding: nothing\n",
    ],
)
def test_what_readers_may_read_differently_is_not_plain(content) -> None:
    with pytest.raises(NotPlain):
        plain_text(content)
    with pytest.raises(NotPlain):
        program_digest(content)


def test_plain_text_has_one_line_end() -> None:
    assert plain_text("# é\r\nx = 1\n".encode()) == "# é\nx = 1\n"
    assert plain_text(b"# coding: utf-8\n") == "# coding: utf-8\n"


@pytest.mark.parametrize("text", ["def f(:", "", "x = 1", "\0", "\ud800", "(" * 10000, "# coding: latin-1\n"])
def test_any_text_has_a_name(text) -> None:
    name = program_name(text)
    assert len(name) == 64 and name == program_name(text)
    if "def" in text:
        assert name == hashlib.sha256(b"\xff" + text.encode()).hexdigest()
