"""The function that stands in for ``forward`` takes what the original takes, and fails as it fails."""

import functools
import inspect
import traceback

import pytest
import torch
from adopting import BODY, DOMAIN, MODULE, X, kernel_text, ran, used

from pytest_kernelllm.runtime import explain

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

SIGNATURE = "self, x, scale: float = 1.0, mask: Optional[torch.Tensor] = None"


@pytest.fixture
def with_parameters(write):
    """A module whose ``forward`` has these parameters, and whose kernel has those."""

    def make(parameters: str, kernel: str | None = None):
        body = BODY.replace("self, x, scale=1.0, mask=None", kernel or parameters)
        cls = write(kernel_text(body), MODULE.replace(SIGNATURE, parameters))
        return cls().eval().requires_grad_(False)

    return make


@pytest.mark.parametrize(
    "parameters",
    [
        "self, x, scale=1.0, mask=None, *args, **kwargs",
        "self, x, /, scale=1.0, *, mask=None",
        "self, x, *, scale=1.0, mask=None, **kwargs",
        "self, x, scale=1.0, mask=None, id=None, Exception=None, form=None, module=None, original=None",
    ],
)
def test_any_kind_of_parameter(with_parameters, parameters) -> None:
    module = with_parameters(
        parameters, parameters.replace(", *args, **kwargs", "").replace(", **kwargs", "")
    )
    for _ in range(2):
        assert used(module, X)
        assert used(module, X, mask=None)
        assert not used(module, X, scale=2.0)
        if "/" not in parameters:
            assert used(module, x=X)
        if "kwargs" in parameters:
            assert not used(module, X, further=1)
            told = "argument `further` in `**kwargs` was not passed when the kernel was verified"
            assert told in explain(module, X, further=1)
        if "args" in parameters.replace("kwargs", ""):
            assert "passed through `*` (args)" in explain(module, X, 1.0, None, 1)


def test_self_by_another_name(write) -> None:
    cls = write(kernel_text(), MODULE.replace(f"forward({SIGNATURE})", "forward(this, x, scale=1.0, mask=None)")
                .replace("return plain(self.helper(x))", "self = this\n        return plain(self.helper(x))"))  # fmt: skip
    assert used(cls().eval().requires_grad_(False), X)


def test_a_kernel_with_fewer_parameters(with_parameters) -> None:
    module = with_parameters("self, x, scale=1.0, mask=None", "self, x")
    for _ in range(2):
        assert used(module, X) and used(module, X, 1.0, None)
        assert not used(module, X, 2.0)
        assert not used(module, X, mask=0)


def test_a_kernel_that_lacks_an_argument_of_its_domain(write) -> None:
    from dataclasses import replace

    domain = replace(DOMAIN, inputs={**DOMAIN.inputs, "scale": 2.0})
    body = BODY.replace("self, x, scale=1.0, mask=None", "self, x")
    module = write(kernel_text(body, domain=domain))().eval().requires_grad_(False)
    assert not used(module, X, 2.0)
    assert "the kernel's forward does not take `scale`" in explain(module, X, 2.0)


DECORATED = """
def renaming(function):
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        if "factor" in kwargs:
            kwargs["scale"] = kwargs.pop("factor")
        return function(self, *args, **kwargs)
    return inner
"""


def test_a_decorated_forward_keeps_what_its_decorator_takes(write) -> None:
    text = MODULE.replace("from typing", f"import functools\n{DECORATED}\nfrom typing", 1)
    cls = write(kernel_text(), text.replace("    def forward(", "    @renaming\n    def forward("))
    module = cls().eval().requires_grad_(False)
    for _ in range(2):
        assert used(module, X) and used(module, x=X, scale=1.0)
        assert not ran(module(X, factor=2.0))
        torch.testing.assert_close(module(X, factor=2.0), module(X, scale=2.0))
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        module(X, nothing=1)


def test_a_forward_under_no_grad(write) -> None:
    cls = write(kernel_text(), MODULE.replace("    def forward(", "    @torch.no_grad()\n    def forward("))
    module = cls().eval()
    assert not used(module, X)  # gradients are on where the class is called
    with torch.no_grad():
        assert used(module, X)


@pytest.mark.parametrize("call", [(), (X, 1.0, None, 4)], ids=["too few", "too many"])
def test_wrong_arguments_fail_as_they_did(module, call) -> None:
    def error(function) -> str:
        with pytest.raises(TypeError) as caught:
            function(module, *call)
        return str(caught.value)

    forward = type(module).forward
    assert error(forward) == error(forward.__kernelllm_original__)


def test_what_the_original_raises_comes_through_with_readable_lines(module) -> None:
    module(X)
    with pytest.raises(RuntimeError, match="must match the size") as caught:
        module(torch.randn(4, 7))
    lines = [frame.line for frame in traceback.extract_tb(caught.tb) if "kernelllm forward" in frame.filename]
    assert lines == ["return kernelllm_original(self, x, scale, mask)"]
    assert module(X).max() > 50


def test_the_signature_and_what_tools_read_from_it(cls) -> None:
    original = cls.forward.__kernelllm_original__
    assert inspect.signature(cls.forward) == inspect.signature(original)
    assert inspect.getfullargspec(cls.forward).args == ["self", "x", "scale", "mask"]
    assert cls.forward.__code__.co_varnames[:4] == ("self", "x", "scale", "mask")
    assert cls.forward.__defaults__ == original.__defaults__
    assert functools.partial(cls.forward, cls().eval().requires_grad_(False))(X).max() > 50
