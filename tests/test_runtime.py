import copy
import gc
import inspect
import io
import os
import pickle
import subprocess
import sys
import textwrap
import warnings
import weakref
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported anywhere in this process

import pytest
import torch
from torch import nn

from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.kernel_module import Provenance, compose
from pytest_kernelllm.records import Domain, TensorSpec
from pytest_kernelllm.runtime import KernelLLMWarning, explain

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

MODULE = '''
from typing import Optional
import torch
from torch import nn
from pytest_kernelllm import triton_candidate

def plain(x):
    return x

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(8))

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    limit = 3
    def __init__(self, eps=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.eps = eps
        self.stride = (1, 2)
        self.sizes = [1, 2]
        self.act = nn.functional.relu
        self.inner = Inner()

    def helper(self, x):
        return x

    def forward(self, x, scale: float = 1.0, mask: Optional[torch.Tensor] = None):
        """Original."""
        return plain(self.helper(x)) * self.weight * scale + self.inner.bias + self.eps
'''

# Adds 100, so that a test can tell which of the two ran.
BODY = """
@triton.jit
def shift_kernel(x, w, b, out, eps, n, columns: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    y = tl.load(x + i, mask=m) * tl.load(w + i % columns, mask=m) + tl.load(b + i % columns, mask=m)
    tl.store(out + i, y + eps + 100.0, mask=m)


def forward(self, x, scale=1.0, mask=None):
    out = torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 64),)
    shift_kernel[grid](x, self.weight, self.inner.bias, out, self.eps, n, columns=8, BLOCK=64)
    return out
"""

DOMAIN = Domain(
    inputs={"x": TensorSpec("float32", ("rows", 8))},
    attributes={
        "weight": TensorSpec("float32", (8,)),
        "inner.bias": TensorSpec("float32", (8,)),
        "inner.__class__": "adopted.Inner",
        "eps": 0.5,
        "limit": 3,
        "stride[1]": 2,
        "sizes[0]": 1,
        "act": "torch.nn.functional.relu",
    },
    dims={"rows": (1, 16)},
)


def kernel_text(body: str = BODY, source_hash: str = "", domain: Domain = DOMAIN) -> str:
    text = compose(Provenance("adopted.py::Shift", source_hash or "0", "files"), "Shift.", [domain], body)
    return text if source_hash else text.replace("# source hash: 0\n", "")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes ``adopted.py`` and its kernel, and imports it afresh: the class ``Shift``."""
    torch.set_num_threads(1)
    monkeypatch.setenv("KERNELLLM_INTERPRET", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.delenv("KERNELLLM_STRICT", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    def make(kernel: str | None = None, module: str = MODULE):
        (tmp_path / "adopted.py").write_text(module)
        if kernel is not None:
            (tmp_path / "_triton").mkdir(exist_ok=True)
            (tmp_path / "_triton" / "shift.py").write_text(kernel)
        import adopted

        return adopted.Shift

    yield make
    sys.modules.pop("adopted", None)


@pytest.fixture
def cls(write):
    return write(kernel_text())


@pytest.fixture
def module(cls):
    return cls().eval().requires_grad_(False)


def used(module: nn.Module, *args, **kwargs) -> bool:
    """Whether the kernel ran. Asserts that the result is right and that ``explain`` says so beforehand."""
    told = explain(module, *args, **kwargs)
    result = module(*args, **kwargs)
    expected = type(module).forward.__kernelllm_original__(module, *args, **kwargs)
    ran = bool((result - expected).abs().max() > 50)
    assert torch.allclose(result - (100 if ran else 0), expected, atol=1e-3)
    assert ("runs the kernel _triton.shift" in told) == ran, told
    return ran


X = torch.randn(4, 8)


def test_inside_the_domain_the_kernel_runs(module) -> None:
    for rows in (4, 1, 16, 4):
        assert used(module, torch.randn(rows, 8))
    assert used(module, x=X)
    assert used(module, X, scale=1.0, mask=None)


OUTSIDE_CALLS = {
    "rows above the range": ((torch.randn(17, 8),), {}),
    "another rank": ((torch.randn(2, 4, 8),), {}),
    "another dtype": ((X.double(),), {}),
    "not contiguous": ((torch.randn(4, 16)[:, ::2],), {}),
    "a value that is no default": ((X,), {"scale": 2.0}),
    "an int for a float": ((X,), {"scale": 1}),
    "a subclass of Tensor": ((X.as_subclass(type("Sub", (torch.Tensor,), {})),), {}),
    "wanting a gradient": ((X.clone().requires_grad_(),), {}),
}


@pytest.mark.parametrize("case", OUTSIDE_CALLS)
def test_outside_the_domain_the_original_runs(module, case) -> None:
    args, kwargs = OUTSIDE_CALLS[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not used(module, *args, **kwargs)
        assert not used(module, *args, **kwargs)
    assert used(module, X)


def widen(module):
    module.inner.extra = nn.Linear(1, 1)


CHANGES = {
    "scalar": lambda m: setattr(m, "eps", 0.25),
    "scalar of another type": lambda m: setattr(m, "eps", 1),
    "item of a tuple": lambda m: setattr(m, "stride", (1, 3)),
    "item of a list": lambda m: m.sizes.__setitem__(0, 7),
    "list shortened": lambda m: m.sizes.clear(),
    "function": lambda m: setattr(m, "act", torch.tanh),
    "class attribute": lambda m: setattr(m, "limit", 4),
    "parameter replaced by another shape": lambda m: setattr(m, "weight", nn.Parameter(torch.ones(1))),
    "parameter changed in place": lambda m: (
        m.weight.data.__class__ and setattr(m.weight, "data", torch.ones(1))
    ),
    "module cast": lambda m: m.double(),
    "submodule cast": lambda m: m.inner.double(),
    "train": lambda m: m.train(),
    "train, a submodule only": lambda m: m.inner.train(),
    "submodule of another class": lambda m: setattr(
        m.inner, "__class__", type("Other", (type(m.inner),), {})
    ),
    "submodule added": widen,
    "parameter added": lambda m: m.inner.register_parameter("more", nn.Parameter(torch.ones(1))),
    "hook on a submodule": lambda m: m.inner.register_forward_hook(lambda *_: None),
    "forward replaced on a submodule": lambda m: setattr(m.inner, "forward", lambda x: x),
    "method replaced on the instance": lambda m: setattr(m, "helper", lambda x: x),
    "a gradient wanted": lambda m: m.weight.requires_grad_(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_is_noticed_after_the_kernel_ran(module, change) -> None:
    assert used(module, X)
    CHANGES[change](module)
    assert not used(module, X)


def test_grad_mode_counts_only_where_a_gradient_is_wanted(module) -> None:
    module.requires_grad_(True)
    assert not used(module, X)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert used(module, X)
    x = X.clone().requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None


def test_meta_tensors(module) -> None:
    assert module.to("meta")(X.to("meta")).device.type == "meta"


def test_autocast(module) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not used(module, X)
    assert used(module, X)


def test_default_device_does_no_harm_but_other_modes_rule_the_kernel_out(module) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils.flop_counter import FlopCounterMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with torch.device("cpu"):
        assert used(module, X)
    for mode in (Mode(), FlopCounterMode(display=False)):
        with mode:
            assert not used(module, X)


def test_global_hooks(module) -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not used(module, X)
    finally:
        handle.remove()
    assert used(module, X)


def test_transforms(module) -> None:
    assert torch.func.vmap(module)(X[None]).max() < 50
    primal, tangent = torch.func.jvp(module, (X,), (X,))
    assert primal.max() < 50 and tangent.abs().max() > 0
    with torch.autograd.forward_ad.dual_level():
        assert (
            torch.autograd.forward_ad.unpack_dual(module(torch.autograd.forward_ad.make_dual(X, X))).tangent
            is not None
        )


def test_tracers_and_compilers_see_the_original(module) -> None:
    expected = type(module).forward.__kernelllm_original__(module, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates torch.jit
        traced, scripted = torch.jit.trace(module, (X,)), torch.jit.script(module)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    exported = torch.export.export(module, (X,)).module(check_guards=False)
    for made in (traced, scripted, compiled, exported, torch.fx.symbolic_trace(module)):
        assert torch.allclose(made(X), expected), made
    assert used(module, X)


def test_subclasses(cls) -> None:
    class Same(cls):
        def extra_repr(self):
            return "same"

    class Calls(cls):
        def forward(self, x):
            return super().forward(x)

    class Helps(cls):
        def helper(self, x):
            return x * 2

    ready = [each().eval().requires_grad_(False) for each in (Same, Calls, Helps)]
    assert used(ready[0], X)
    assert ready[1](X).max() > 50
    assert not used(ready[2], X)


def test_the_class_is_otherwise_as_it_was(cls, module) -> None:
    assert used(module, X)
    original = cls.forward.__kernelllm_original__
    assert inspect.signature(cls.forward) == inspect.signature(original)
    assert (cls.forward.__name__, cls.forward.__doc__) == ("forward", "Original.")
    assert set(module.state_dict()) == {"weight", "inner.bias"}
    assert set(vars(module)) == set(vars(nn.Module())) | {"eps", "stride", "sizes", "act"}
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), copy.copy(module)):
        assert used(twin, X)
        twin.eps = 0.25
        assert not used(twin, X)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    assert used(torch.load(buffer, weights_only=False), X)
    assert used(module, X)


def test_instances_are_not_kept_alive(cls) -> None:
    module = cls().eval().requires_grad_(False)
    assert used(module, X)
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None
    assert not cls.forward.__kernelllm_dispatcher__._instances


def test_adopting_twice_keeps_the_first_original(cls) -> None:
    from pytest_kernelllm import runtime

    original = cls.forward.__kernelllm_original__
    runtime.adopt(cls, "_triton.shift")
    assert cls.forward.__kernelllm_original__ is original
    with pytest.raises(TypeError, match="is not a plain function"):
        runtime.adopt(type("Nothing", (), {}), "_triton.shift")


def falls_back(cls, match: str) -> None:
    """The original runs, with one warning and no more."""
    module = cls().eval().requires_grad_(False)
    with pytest.warns(KernelLLMWarning, match=match) as caught:
        assert module(X).max() < 50
        assert cls().eval().requires_grad_(False)(X).max() < 50
    assert len(caught) == 1
    assert not used(module, X)


def test_a_missing_kernel(write) -> None:
    falls_back(write(), "there is no module _triton.shift; apply its patch again")


def test_text_that_is_no_kernel_module(write) -> None:
    falls_back(write("def forward(self, x): return x"), "is no kernel module")


def test_a_kernel_that_fails_to_import(write) -> None:
    falls_back(write(kernel_text(BODY + "\nimport does_not_exist\n")), "fails to import .*does_not_exist")


@pytest.mark.parametrize("parameters", ["self, y, scale=1.0", "self, x, scale=2.0"])
def test_a_kernel_with_other_parameters(write, parameters) -> None:
    text = kernel_text(
        BODY.replace("def forward(self, x, scale=1.0, mask=None)", f"def forward({parameters})")
    )
    falls_back(write(text), "has another (parameter|default)")


def test_a_kernel_that_raises(write, monkeypatch) -> None:
    cls = write(kernel_text("def forward(self, x, scale=1.0, mask=None):\n    raise ValueError('broken')"))
    module = cls().eval().requires_grad_(False)
    with monkeypatch.context() as strict:
        strict.setenv("KERNELLLM_STRICT", "1")
        with pytest.raises(ValueError, match="broken"):
            module(X)
    falls_back(cls, "raised ValueError: broken")


def test_a_stale_kernel(write, tmp_path) -> None:
    (tmp_path / "adopted.py").write_text(MODULE)
    (target,) = scan_file(tmp_path / "adopted.py", tmp_path).targets
    module = write(kernel_text(source_hash=target.source_hash))().eval().requires_grad_(False)
    assert used(module, X)
    sys.modules.pop("adopted")
    falls_back(
        write(module=MODULE.replace("+ self.eps", "+ 2 * self.eps")), "Shift changed since _triton.shift"
    )


def test_disabled(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_DISABLE", "1")
    module = write(kernel_text())().eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not used(module, X)
    assert "KERNELLLM_DISABLE" in explain(module, X)


def test_cpu_tensors_need_the_switch_and_import_no_kernel(write, monkeypatch) -> None:
    monkeypatch.delenv("KERNELLLM_INTERPRET")
    cls = write(kernel_text())
    module = cls().eval().requires_grad_(False)
    assert not used(module, X)
    assert "is on cpu, the kernel runs on cuda" in explain(module, X)
    assert "forward" not in vars(cls.forward.__kernelllm_dispatcher__.kernel)


def test_explain_a_module_without_kernel() -> None:
    assert explain(nn.Linear(1, 1), X) == "Linear runs its own forward: no kernel is adopted for it."


def test_a_package_finds_its_kernel_by_import(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (package / "_triton").mkdir(parents=True)
    for folder in (package, package / "_triton"):
        (folder / "__init__.py").touch()
    (package / "adopted.py").write_text(MODULE.replace('"_triton.shift"', '"pkg._triton.shift"'))
    (package / "_triton" / "shift.py").write_text(kernel_text().replace("adopted.Inner", "pkg.adopted.Inner"))
    program = """
        import sys, torch
        import pkg.adopted
        assert "triton" not in sys.modules and "pkg._triton" not in sys.modules
        module = pkg.adopted.Shift().eval().requires_grad_(False)
        assert module(torch.randn(4, 8)).max() > 50
        """
    switches = {"TRITON_INTERPRET": "1", "KERNELLLM_INTERPRET": "1"}
    subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env={**os.environ, **switches, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[1]}"},
        check=True,
    )
