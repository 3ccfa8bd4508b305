"""Property tests bound what they draw: a test that relies on a quiet machine fails on a busy one."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
GROWING = {"lists", "text", "binary", "dictionaries", "sets", "frozensets", "iterables", "from_regex"}
BOUND = {"max_size", "max_leaves", "fullmatch"}


def unbounded(source):
    """Yields the lines of strategies of the module ``st`` that may draw as much as they like."""
    for node in ast.walk(ast.parse(source)):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") == "st":
            given = {keyword.arg for keyword in node.keywords}
            if called.attr in GROWING | {"recursive"} and not given & BOUND:
                yield node.lineno
            named = (each for each in node.args if isinstance(each, ast.Attribute))  # `st.lists` itself
            yield from (each.lineno for each in named if getattr(each.value, "id", "") == "st")


def test_every_strategy_is_bounded():
    found = [
        f"{file.relative_to(TESTS)}:{line}"
        for file in sorted(TESTS.rglob("*.py"))
        if "hypothesis import strategies as st" in file.read_text()
        for line in unbounded(file.read_text())
    ]
    assert found == []


def test_an_unbounded_one_is_found():
    assert list(
        unbounded("st.recursive(st.none(), st.lists)\nst.text()\nst.lists(st.none(), max_size=3)")
    ) == [1, 1, 2]
