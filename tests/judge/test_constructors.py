"""Constructors of completions run in workers, which cannot harm and are not believed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelllm_judge.constructors import SECONDS, Constructors
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.modelnew.settings import Setting, modules_of, numbers_of

TEXT = """
import os, time
WIDTH = 2 * 64
DEAD = time.sleep(60)

class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        {init}

    def forward(self, x):
        return x * WIDTH
"""


@pytest.fixture(scope="module")
def constructors() -> Iterator[Constructors]:
    with Constructors(probe_isolation("cpu")) as opened:
        yield opened


def settings(constructors: Constructors, init: str, *args: Any) -> dict[str, Setting]:
    made = constructors.construct(TEXT.format(init=init), args, {})
    assert not made.error
    assert numbers_of(made.reply) == {"WIDTH": 128}
    return dict(modules_of(made.reply, ())[0].settings)


def error(constructors: Constructors, init: str) -> str:
    return constructors.construct(TEXT.format(init=init), (), {}).error


def test_a_constructor_runs_in_another_process(constructors: Constructors) -> None:
    assert settings(constructors, "self.n = os.getpid()")["n"].value != os.getpid()


def test_a_constructor_cannot_write_elsewhere(constructors: Constructors, tmp_path: Path) -> None:
    if not probe_isolation("cpu").landlock:
        pytest.skip("Landlock is missing here")
    said = error(constructors, f"open({str(tmp_path / 'file')!r}, 'w')")
    assert said.startswith("line 9: PermissionError")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("self.n = 1 / 0", "line 9: ZeroDivisionError: division by zero"),
        ("self.n = absent", "line 9: NameError: name 'absent' is not defined"),
        ("self.m = self", "contains itself"),
        ("os._exit(3)", "exited with status 3"),
    ],
)
def test_why_a_constructor_fails(constructors: Constructors, init: str, said: str) -> None:
    assert said in error(constructors, init)


STUBBORN = """
        while True:
            try:
                time.sleep(1)
            except BaseException:
                pass
"""


@pytest.mark.parametrize(
    "init", ["time.sleep(600)", "while True: pass", STUBBORN, "os.kill(os.getpid(), 19)"]
)
def test_a_constructor_that_does_not_end(init: str) -> None:
    with Constructors(probe_isolation("cpu"), seconds=0.5) as impatient:
        assert "did not finish `construct` before the deadline" in error(impatient, init)


def test_every_constructor_has_a_deadline() -> None:
    with Constructors(probe_isolation("cpu")) as usual:
        assert usual.seconds == SECONDS <= 60


WRITE = """
        import struct
        body = {body!r}
        for fd in range(3, 256):
            try:
                os.write(fd, {prefix} + body)
            except OSError:
                pass
        os._exit(0)
"""
LENGTH = "struct.pack('<I', len(body))"


@pytest.mark.parametrize(
    ("prefix", "body", "said"),
    [
        ("b''", b"junk of the candidate", "the worker wrote something that is no message"),
        ("b''", b"\xff" * 64, "the worker wrote something that is no message"),
        (LENGTH, b"\x80\x04N.", "no message: it is not JSON"),
        (LENGTH, b"[" * 9000, "no message: it is not JSON, or nested too deeply"),
        (LENGTH, b"[]", "no message: it is not a JSON object"),
        (LENGTH, b'{"error": 7}', "an invalid reply"),
        (LENGTH, b'{"error": {"line": "x", "type": [], "message": {}}}', "[]: {}"),
        (LENGTH, b'{"compiling": false}', "the worker wrote that a compilation begins or ends, out of turn"),
    ],
)
def test_what_a_constructor_writes_on_the_channel_is_not_believed(
    constructors: Constructors, prefix: str, body: bytes, said: str
) -> None:
    text = error(constructors, WRITE.format(prefix=prefix, body=body))
    assert said in text and not any(number in text for number in ("1802401130", "4294967295"))
    assert settings(constructors, "self.n = 1")["n"].value == 1  # the next one is not affected


def test_a_forged_description_is_checked_as_any_other(constructors: Constructors) -> None:
    forged = {"modules": [{"path": "", "class": "X", "attributes": [{"name": "a", "kind": "spell"}]}]}
    made = constructors.construct(
        TEXT.format(init=WRITE.format(prefix=LENGTH, body=json.dumps(forged).encode())), (), {}
    )
    assert made.reply == forged
    with pytest.raises(RenderError, match="described it wrongly"):
        modules_of(made.reply, ())


def test_weights_take_no_memory(constructors: Constructors) -> None:
    layer = settings(constructors, "self.fc = nn.Linear(1 << 20, 1 << 20); self.w = self.fc.weight.half()")
    assert layer["fc"].stated["in_features"] == 1 << 20
    assert layer["w"].kind == "alias"


def test_arguments_of_any_type(constructors: Constructors) -> None:
    config = SimpleNamespace(eps=1e-3, inner=SimpleNamespace(sizes=[1, 2]), act=torch.nn.GELU, odd=object())
    init = "c, t, d = args; self.eps, self.k = c.eps, c.inner.sizes; self.a = c.act(); self.n = len(t) + d.itemsize"
    found = settings(constructors, init, config, torch.ones(3), torch.float16)
    assert (found["eps"].value, found["k"].value, found["n"].value) == (1e-3, (1, 2), 5)
    assert found["a"].layer == "torch.nn.GELU"


GOOD = {"name": "n", "line": 3, "kind": "value", "value": 1}


@pytest.mark.parametrize(
    "attribute",
    [
        {**GOOD, "kind": "spell"},
        {**GOOD, "value": [1]},
        {**GOOD, "value": {"tuple": [{}]}},
        {**GOOD, "name": "n; import os"},
        {**GOOD, "line": "x"},
        {**GOOD, "kind": "alias", "of": "__import__('os')", "steps": []},
        {**GOOD, "kind": "alias", "of": "self.w", "steps": [{"name": "a()", "called": False}]},
        {**GOOD, "kind": "tensor"},
        {"kind": "value"},
        7,
    ],
)
def test_a_description_of_another_form_is_refused(attribute: Any) -> None:
    module = {"path": "", "class": "ModelNew", "attributes": [GOOD, attribute]}
    with pytest.raises(RenderError, match="described it wrongly"):
        modules_of({"modules": [module]}, ())


@pytest.mark.parametrize("reply", [{}, {"modules": 3}, {"modules": []}, {"modules": [{"path": "a.b"}]}])
def test_a_reply_of_another_form_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(RenderError, match="ModelNew's constructor"):
        modules_of(reply, ())
