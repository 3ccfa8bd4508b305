"""``torch.compile`` with KERNELLLM_COMPILE=1. The kernel is plain PyTorch here: Triton's own needs a GPU to be traced."""

import adopting
import pytest
import torch
from adopting import TORCH_BODY, X, kernel_text, ran

pytestmark = [
    pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning"),
    pytest.mark.slow,
]

WIDE = torch.randn(17, 8)
"""More rows than the domain has."""


@pytest.fixture
def module(write, monkeypatch):
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    torch._dynamo.reset()
    yield write(kernel_text(TORCH_BODY))().eval().requires_grad_(False)
    torch._dynamo.reset()


def compiled(module, **options):
    return torch.compile(module, backend="eager", fullgraph=True, **options)


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_the_kernel_is_traced_inside_its_domain_only(module, dynamic) -> None:
    call = compiled(module, dynamic=dynamic)
    assert ran(call(X))
    assert not ran(call(WIDE))
    assert ran(call(X[:3].clone())), "compiled anew for other sizes"
    assert not ran(call(X, scale=2.0)), "the domain knows no scale but the default"
    assert ran(call(X))


def test_a_traced_kernel_hands_back_what_no_probe_ran(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    torch._dynamo.reset()
    fence = "    if x.shape[0] == 3:\n        raise NotImplementedError('outside the verified domain')\n    return"
    call = compiled(
        write(kernel_text(TORCH_BODY.replace("    return", fence)))().eval().requires_grad_(False)
    )
    assert ran(call(X)) and not ran(call(X[:3].clone())) and ran(call(X[:2].clone()))
    torch._dynamo.reset()


# torch.compile itself does not notice hooks that are added later (torch._dynamo.config.skip_nnmodule_hook_guards),
# and takes another instance's method for the module's own.
UNNOTICED = ("hook on a submodule", "method replaced by another's")
CHANGES = {name: change for name, change in adopting.CHANGES.items() if name not in UNNOTICED}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_module_is_compiled_anew_with_the_original(module, change) -> None:
    call = compiled(module)
    assert ran(call(X))
    change(module)
    result = call(X.double() if module.weight.dtype == torch.float64 else X)
    assert not ran(result.detach())


def test_what_cannot_be_asked_of_a_class_while_compiling_leaves_the_original(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    odd = "    half = __import__('functools').partialmethod(helper, x=1)\n\n    def forward("
    module = write(kernel_text(TORCH_BODY), adopting.MODULE.replace("    def forward(", odd))().eval()
    module.requires_grad_(False)
    assert ran(module(X))
    assert not ran(compiled(module)(X))


def test_a_hook_that_is_there_when_it_is_compiled(module) -> None:
    module.inner.register_forward_hook(lambda *_: None)
    assert not ran(compiled(module)(X))


def test_gradients_and_autocast_are_the_originals(module) -> None:
    call = compiled(module)
    assert not ran(call(X.clone().requires_grad_()).detach())
    with torch.no_grad():
        assert ran(call(X.clone().requires_grad_()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not ran(call(X))
    assert ran(call(X))


def test_lazily_negated_tensors_are_the_originals(module) -> None:
    call = compiled(module)
    assert ran(call(X))
    assert not ran(call(torch._neg_view(X)))
    module.weight = torch.nn.Parameter(torch._neg_view(module.weight.detach()), requires_grad=False)
    assert not ran(call(X))


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_hold_the_original(module, strict) -> None:
    assert not ran(torch.export.export(module, (X,), strict=strict).module(check_guards=False)(X))


def test_without_a_kernel_the_original_is_compiled(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    module = write()().eval().requires_grad_(False)
    with pytest.warns(match="runs its original forward because"):
        assert not ran(compiled(module)(X))
