"""Modules that came about in other ways than by calling their class."""

import copy
import io
import pickle
import queue
import sys
import threading
import types

import pytest
import torch
from adopting import TORCH_BODY, X, kernel_text, ran, used
from torch import nn
from torch.func import functional_call

from kernelllm_runtime.any_kernel import Unavailable
from kernelllm_runtime.kernel import Kernel

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


def test_data_parallel_replicas(module) -> None:
    """What ``torch.nn.parallel.replicate`` does, with copies on the one device that is there."""
    assert used(module, X)
    for _ in range(2):
        replica, inner = module._replicate_for_data_parallel(), module.inner._replicate_for_data_parallel()
        replica._modules["inner"] = inner
        replica.weight, inner.bias = module.weight.detach() * 2, module.inner.bias.detach().clone()
        assert not replica._parameters and not inner._parameters
        assert used(replica, X)
        torch.testing.assert_close(replica(X) - module(X), X * module.weight)
        replica.weight = replica.weight.double()
        assert not used(replica, X)
    assert used(module, X)


def test_replicas_that_want_gradients_run_the_original(module) -> None:
    replica = module.requires_grad_(True)._replicate_for_data_parallel()
    replica.weight = module.weight * 1  # as broadcast for a backward pass
    replica(X).sum().backward()
    assert module.weight.grad is not None


def test_copies_and_pickles_are_modules_of_their_own(module) -> None:
    assert used(module, X)
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    twins = (
        copy.deepcopy(module),
        copy.copy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(buffer, weights_only=False),
    )
    for twin in twins:
        assert used(twin, X)
        twin.eps = 0.25
        assert not used(twin, X)
    assert used(module, X)


def test_a_class_pickled_by_value_takes_along_what_it_needs(module) -> None:
    """As cloudpickle does: by the cells of ``forward``, each as its class says how to make it again."""
    assert used(module, X)
    dispatcher = type(module).forward.__kernelllm_dispatcher__
    twin = copy.copy(dispatcher)
    assert dispatcher.known and not twin.known and twin.reason(module, (X,), {}) is None
    assert ran(twin.form(module, X, 1.0, None).kernel(module, X, 1.0, None))
    own = {dispatcher, dispatcher.original, None}
    for cell in type(module).forward.__closure__:
        if cell.cell_contents not in own:
            pickle.dumps(cell.cell_contents)
    assert "forward" in vars(dispatcher.kernel) and "forward" not in vars(copy.copy(dispatcher.kernel))


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_goes_round(cls, module, assign) -> None:
    module.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    other = cls().eval().requires_grad_(False)
    assert used(other, X)
    other.load_state_dict(module.state_dict(), assign=assign)
    assert used(other, X)
    torch.testing.assert_close(other(X), module(X))
    other.load_state_dict(
        {name: tensor.double() for name, tensor in module.state_dict().items()}, assign=True
    )
    assert not used(other, X)


def test_modules_made_without_memory(cls, module) -> None:
    """As FSDP and ``from_pretrained`` do: built on the meta device, filled later."""
    with torch.device("meta"):
        empty = cls().eval().requires_grad_(False)
    assert empty(X.to("meta")).device.type == "meta"
    allocated = copy.deepcopy(empty).to_empty(device="cpu")
    allocated.load_state_dict(module.state_dict())
    assert used(allocated, X)
    empty.load_state_dict(module.state_dict(), assign=True)
    assert used(empty, X)
    torch.testing.assert_close(empty(X), module(X))


def test_parameters_swapped_for_one_call(module) -> None:
    assert used(module, X)
    swapped = functional_call(module, {"weight": torch.full((8,), 3.0)}, (X,))
    torch.testing.assert_close(swapped - module(X), 2 * X)
    assert functional_call(module, {"weight": torch.full((8,), 3.0).double()}, (X,)).max() < 50
    assert used(module, X)


def test_parametrized_parameters(module) -> None:
    assert used(module, X)
    torch.nn.utils.parametrize.register_parametrization(module, "weight", nn.Identity())
    assert not used(module, X)
    torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    assert used(module.requires_grad_(False), X)


def test_one_module_in_several_threads(write) -> None:
    """All forms at once, some inside the domain and some outside: no thread gets another one's decision."""
    module = write(kernel_text(TORCH_BODY))().eval().requires_grad_(False)
    inputs = [torch.randn(rows, 8) for rows in (4, 5, 17, 18)]
    expected = [module(x) for x in inputs]
    start, wrong = threading.Barrier(4), []

    def work(offset: int) -> None:
        start.wait()
        for index in range(500):
            which = (index + offset) % 4
            if not torch.equal(module(inputs[which]), expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [ran(each) for each in expected] == [True, True, False, False]


def test_gradients_off_in_one_thread_only(write) -> None:
    module = write(kernel_text(TORCH_BODY))().eval()
    module.requires_grad_(True)
    with torch.no_grad():
        assert used(module, X)
    found = []
    thread = threading.Thread(target=lambda: found.append(ran(module(X))))  # grad mode is the thread's own
    with torch.no_grad():
        thread.start()
        thread.join()
        assert used(module, X)
    assert found == [False]


def test_whoever_needs_a_kernel_waits_while_another_thread_imports_it(write, monkeypatch) -> None:
    """As replicas of ``nn.DataParallel`` do at their first call."""
    gate = types.SimpleNamespace(entered=threading.Event(), go=threading.Event())
    monkeypatch.setitem(sys.modules, "gate", gate)
    cls = write("import gate\ngate.entered.set()\ngate.go.wait(60)\n" + kernel_text(TORCH_BODY))
    kernel = cls.forward.__kernelllm_dispatcher__.kernel
    done: queue.SimpleQueue[object] = queue.SimpleQueue()

    def load() -> None:
        try:
            # Before Python 3.12 the property itself makes threads wait.
            done.put(Kernel.forward.func(kernel))
        except Unavailable as error:
            done.put(error)

    threads = [threading.Thread(target=load) for _ in range(2)]
    threads[0].start()
    assert gate.entered.wait(240)
    threads[1].start()
    with pytest.raises(queue.Empty):  # without the wait it would be through, with half a module
        done.get(timeout=0.5)
    gate.go.set()
    found = [done.get(timeout=240) for _ in threads]
    assert found[0] is found[1] and callable(found[0])
