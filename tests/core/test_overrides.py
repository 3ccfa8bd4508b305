"""When a conftest's inputs count as others."""

import functools
import subprocess
import sys

from pytest_kernelllm.core.overrides import Overrides

DEFINED = """
def rows(n=6):
    names = {"a", "b", "c"}
    return [n for name in names if name in {"a", "b"}]
"""


def fingerprint(source: str, name: str = "rows") -> str:
    names: dict[str, object] = {}
    exec(source, names)
    return Overrides(inputs=names[name]).fingerprint


def test_it_changes_with_code_constants_and_defaults_only() -> None:
    first = fingerprint(DEFINED)
    assert first and fingerprint("\n\n# elsewhere\n" + DEFINED) == first
    for old, new in (
        ("n=6", "n=7"),
        ('"c"', '"d"'),
        ("return [n", "return [n + 1"),
        ("name in names", "name in {9}"),
    ):
        assert fingerprint(DEFINED.replace(old, new)) != first, new


def test_it_knows_callables_of_every_kind_and_their_names() -> None:
    class Rows:
        def __call__(self):
            return 6

    def rows(n):
        return n

    inputs = [rows, Rows(), functools.partial(rows, 6), functools.partial(rows, 7), {"a": rows}, {"b": rows}]
    assert len({Overrides(inputs=each).fingerprint for each in inputs}) == len(inputs)
    assert Overrides().fingerprint == Overrides(tolerance=0.1).fingerprint == ""


def test_it_is_the_same_in_every_process() -> None:
    program = f"from pytest_kernelllm.core.overrides import Overrides\n{DEFINED}\nprint(Overrides(rows).fingerprint)"
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
