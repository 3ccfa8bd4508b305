"""Decisions are found, recorded and fenced in what runs in Python, and nowhere else."""

from types import SimpleNamespace

import pytest

from kernelllm_judge.coverage.decisions import RECORD, find_decisions, instrumented, recorder
from kernelllm_judge.coverage.fencing import fenced

MODULE = """
SIZES = (16, 32, 64)
NAMES = {"a": 1, "b": 2}


@triton.jit
def kernel(x, n, BLOCK):
    if n > 3:
        x = min(x, n)


def forward(self, x, n, grad=False):
    scale = 1.0
    if n == 21:
        scale = 2.0
    elif x and not grad:
        scale = 3.0
    size = min(n, 128, 4 * n)
    block = SIZES[n % 3]
    flag = n % 7 == 0
    known = x.is_known()
    y = NAMES["a"] if known else -1
    try:
        z = 1 // n
    except ZeroDivisionError:
        z = 5
    return scale, size, block, flag, y, z


SUPPORTS = {}
"""


class X:
    def __init__(self, known=True):
        self.known = known

    def is_known(self):
        return self.known

    def __bool__(self):
        return self.known


TRITON = SimpleNamespace(jit=lambda function: function)


def load(source):
    namespace = {"triton": TRITON}
    exec(source, namespace)
    return namespace["forward"]


def recorded(source, *calls):
    seen = set()
    namespace = {"triton": TRITON, RECORD: recorder(seen)}
    exec(compile(instrumented(source), "kernel_module.py", "exec"), namespace)
    return [namespace["forward"](None, *call) for call in calls], seen


def texts(source):
    return {decision.text: decision for decision in find_decisions(source)}


def test_what_runs_in_python_decides_and_what_runs_on_the_device_does_not():
    found = texts(MODULE)
    assert "n > 3" not in found and "min(x, n)" not in found
    kinds = {text: decision.kind for text, decision in found.items()}
    assert kinds["n == 21"] == kinds["x"] == kinds["grad"] == kinds["known"] == "condition"
    assert kinds["n % 7 == 0"] == kinds["x.is_known()"] == "value"
    assert kinds["min(n, 128, 4 * n)"] == "choice" and kinds["SIZES[n % 3]"] == "index"
    assert kinds["except ZeroDivisionError"] == "handler"
    assert found["SIZES[n % 3]"].outcomes == (0, 1, 2)


def test_instrumented_code_does_the_same_and_records_what_it_decided():
    plain = load(MODULE)
    calls = [(X(), 3), (X(False), 21), (X(), 0)]
    answers, seen = recorded(MODULE, *calls)
    assert answers == [plain(None, *call) for call in calls]
    outcomes = {d.text: {o for n, o, _ in seen if n == d.number} for d in find_decisions(MODULE)}
    assert outcomes["n == 21"] == {True, False}
    assert outcomes["grad"] == {False}
    assert outcomes["min(n, 128, 4 * n)"] == {0}
    assert outcomes["SIZES[n % 3]"] == {0}
    assert outcomes["except ZeroDivisionError"] == {True}


def fence(source, *calls):
    _, seen = recorded(source, *calls)
    missing = {}
    for decision in find_decisions(source):
        taken = {outcome for number, outcome, _ in seen if number == decision.number}
        if (taken and taken < set(decision.outcomes)) or (decision.kind == "handler" and not taken):
            missing[decision.number] = taken
    return fenced(source, missing)


def test_a_fenced_module_does_what_was_seen_and_refuses_the_rest():
    source = fence(MODULE, (X(), 3), (X(), 2))
    forward = load(source)
    assert forward(None, X(), 2) == load(MODULE)(None, X(), 2)
    for call in [(X(), 21), (X(False), 3), (X(), 200), (X(), 4), (X(), 0), (X(), 3, True)]:
        with pytest.raises(NotImplementedError, match="outside the verified domain"):
            forward(None, *call)
    assert source.index("def _judged_only") < source.index("SUPPORTS")


def test_what_is_fenced_decides_nothing_more():
    source = fence(MODULE, (X(), 3), (X(), 2), (X(), 1))
    assert fence(source, (X(), 3), (X(), 2), (X(), 1)) == source


def test_a_fence_of_somebody_elses_making_is_no_fence():
    own = "def _judged_only(value, *outcomes):\n    return value\n\n\ndef forward(self, n):\n    return 1 if _judged_only(n == 3, True) else 2\n"
    assert "n == 3" in texts(own)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("while n > 4: n -= 1\n    return n", "n > 4"),
        ("return [i for i in range(n) if i == 7]", "i == 7"),
        ("return n > 3 or n < -3", "n < -3"),
        ("return 'abc'[n % 3]", "'abc'[n % 3]"),
        ("match n:\n        case 7: return 1\n    return 2", "7"),
        ("return str(n) == '21'", "str(n) == '21'"),
        ("return (lambda m: m == 21)(n)", "m == 21"),
    ],
)
def test_every_way_to_decide_is_seen(body, text):
    source = f"def forward(self, n):\n    {body}\n"
    assert text in texts(source)
    answers, seen = recorded(source, (5,))
    assert answers == [load(source)(None, 5)]
    assert text == "7" or seen


def test_heuristics_of_a_device_function_run_in_python():
    source = "@triton.heuristics({'EVEN': lambda args: args['n'] % 16 == 0})\n@triton.jit\ndef kernel(n, EVEN):\n    if EVEN: pass\n"
    assert "args['n'] % 16 == 0" in texts(source) and "EVEN" not in texts(source)
