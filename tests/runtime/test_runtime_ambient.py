import ast
import contextlib
import inspect
import subprocess
import sys
import warnings

import pytest
import torch
from adopting import X, used

from kernelllm_runtime import ambient
from kernelllm_runtime.states import STATES

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


# What a kernel in a compiled graph sees; compilers are tested below.
LISTED = [state for state in STATES if state.name != "torch.compiler.is_compiling"]


@pytest.mark.parametrize("state", LISTED, ids=lambda state: state.name)
def test_kernels_run_in_the_states_in_which_they_are_judged_and_in_no_other(
    module, state, monkeypatch
) -> None:
    x = X.clone()
    tensors = [*module.parameters(), *module.buffers()]
    assert used(module, x)
    ambient = torch.no_grad() if "require gradients" in state.name else contextlib.nullcontext()
    with ambient, state.enter([x], tensors):
        assert used(module, x) == bool(state.call)
    assert used(module, x)


def test_every_reason_against_kernels_is_a_listed_state(module) -> None:
    tree = ast.parse(inspect.getsource(ambient))
    reasons = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    reasons &= {
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant)
    }
    seen = set()
    for state in STATES:
        with state.enter([X], list(module.parameters())):
            seen.add(ambient.ambient_reason())
    left = {reason for reason in reasons - seen if reason}
    # Tracers and transforms wrap the call itself, see below.
    assert left == {"torch.jit is tracing", "a torch.func transform (vmap, grad) is active"}


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


def test_no_state_in_which_a_kernel_runs_imports_a_compiler():
    script = (
        "import sys\n"
        "import torch\n"
        "from kernelllm_runtime.states import STATES\n"
        "x = torch.ones(2)\n"
        "for state in STATES:\n"
        "    if state.call:\n"
        "        with state.enter([x], []):\n"
        "            x + x\n"
        "assert 'torch._dynamo' not in sys.modules, 'a second for each worker'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
