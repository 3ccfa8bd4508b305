import warnings

import pytest
import torch
from adopting import X, used
from torch import nn

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


def test_autocast(module) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not used(module, X)
    assert used(module, X)


def test_another_default_dtype(module) -> None:
    assert used(module, X)
    torch.set_default_dtype(torch.float64)
    try:
        assert not used(module, X)
    finally:
        torch.set_default_dtype(torch.float32)
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


def test_cached_parametrizations(module) -> None:
    assert used(module, X)
    with torch.nn.utils.parametrize.cached():
        assert not used(module, X)
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
