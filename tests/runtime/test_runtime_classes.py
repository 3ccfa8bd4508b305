import gc
import inspect
import weakref

import pytest
from adopting import X, used
from torch import nn

from kernelllm_runtime import KernelLLMWarning, triton_candidate

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


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

    class Counts(cls):
        def __len__(self):
            return 3

    cls.__len__ = lambda self: 2
    ready = [each().eval().requires_grad_(False) for each in (Same, Calls, Helps, Counts)]
    assert used(ready[0], X)
    assert ready[1](X).max() > 50
    assert not used(ready[2], X)
    assert not used(ready[3], X)


def test_the_class_is_otherwise_as_it_was(cls, module) -> None:
    assert used(module, X)
    original = cls.forward.__kernelllm_original__
    assert inspect.signature(cls.forward) == inspect.signature(original)
    assert (cls.forward.__name__, cls.forward.__doc__) == ("forward", "Original.")
    assert set(module.state_dict()) == {"weight", "inner.bias"}
    assert set(vars(module)) == set(vars(nn.Module())) | {"eps", "stride", "sizes", "act"}


def test_instances_are_not_kept_alive(cls) -> None:
    module = cls().eval().requires_grad_(False)
    assert used(module, X)
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None
    assert not cls.forward.__kernelllm_dispatcher__.known


def test_adopting_twice_keeps_the_first_original(cls) -> None:
    from kernelllm_runtime.install import adopt

    original = cls.forward.__kernelllm_original__
    adopt(cls, "_triton.shift")
    assert cls.forward.__kernelllm_original__ is original
    with pytest.raises(TypeError, match="is not a plain function"):
        adopt(type("Nothing", (), {}), "_triton.shift")


def test_a_class_that_two_files_adopt_kernels_for_runs_the_last_one_and_warns(tmp_path) -> None:
    class Shared(nn.Module):
        def forward(self, x):
            return x

    def marked_by(name, kernel):
        path = tmp_path / name
        source = f"triton_candidate(Shared, inputs=lambda: (), kernel={kernel!r})"
        exec(
            compile(source, str(path), "exec"),
            {
                "__file__": str(path),
                "__name__": path.stem,
                "triton_candidate": triton_candidate,
                "Shared": Shared,
            },
        )

    marked_by("one.py", "_triton.first")
    marked_by("one.py", "_triton.first")  # imported again
    marked_by("two.py", "_triton.first")
    marked_by("two.py", "_triton.other")  # edited, and imported again
    with pytest.warns(
        KernelLLMWarning,
        match=r"three.py adopts the kernel _triton.last for .*Shared, and .*two.py adopted _triton.other",
    ):
        marked_by("three.py", "_triton.last")
    assert Shared.forward.__kernelllm_dispatcher__.kernel.dotted == "_triton.last"
