"""The worker: the process in which one candidate runs. Untrusted from the moment the candidate is loaded.

It answers five orders on its channel: ``load``, ``state``, ``run``, ``compile`` and ``time``. It only ever sees
inputs and writes outputs; what is right it does not know.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton

from pytest_kernelllm.judge import clock
from pytest_kernelllm.judge.channel import Channel, ChannelClosed
from pytest_kernelllm.judge.slabs import attach, view
from pytest_kernelllm.judge.structure import flatten

VENDOR_LAYERS = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "linear.Linear",
        "linear.Bilinear",
        "conv.Conv1d",
        "conv.Conv2d",
        "conv.Conv3d",
        "conv.ConvTranspose1d",
        "conv.ConvTranspose2d",
        "conv.ConvTranspose3d",
        "sparse.Embedding",
    )
)
"""Stock layers a kernel may call on ``self``: the vendor library's GEMMs, convolutions and look-ups."""


class StandIn:
    """What a candidate gets as ``self``: the target's values by name, none of its methods."""

    def __init__(self, values: dict[str, Any]) -> None:
        """Take the values as attributes."""
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Say in words what is missing."""
        raise AttributeError(f"the target has no plain attribute, parameter or buffer `{name}`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Submodules are not callable: the original is not to be had here."""
        raise TypeError(
            "a kernel cannot call the target's own submodules; only stock GEMM and convolution layers"
        )


class Worker:
    """Serves one channel; ``directory`` is its scratch folder."""

    def __init__(self, channel: Channel, directory: Path, fd: int, compile_target: str) -> None:
        """Take the arena's file descriptor, -1 on a GPU; ``compile_target`` is set in compile-only workers."""
        self.channel = channel
        self.directory = directory
        self.fd = fd
        self.compile_target = compile_target
        self.block = torch.empty(0)
        self.module = ModuleType("none")
        self.instance: Any = None
        self.launches = 0

    def serve(self) -> None:
        """Answer orders until the judge closes the channel."""
        orders: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "load": self.load,
            "state": self.state,
            "run": self.run,
            "compile": self.compile,
            "time": self.time,
        }
        while True:
            try:
                order = self.channel.receive()
            except ChannelClosed:
                return
            try:
                reply = orders[order["op"]](order)
            except Exception as error:  # the candidate's own failure is an answer, whatever it is
                reply = {"error": _describe(error, self.directory)}
            self.channel.send(reply)

    def load(self, order: dict[str, Any]) -> dict[str, Any]:
        """Import the kernel module from its source."""
        path = self.directory / "kernel_module.py"
        path.write_text(order["source"], encoding="utf-8")
        self._count_launches()
        spec = importlib.util.spec_from_file_location("kernel_module", path)
        assert spec is not None and spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["kernel_module"] = self.module
        spec.loader.exec_module(self.module)
        if not callable(getattr(self.module, "forward", None)):
            raise TypeError("the kernel module has no function `forward`")
        return {"ok": True}

    def state(self, order: dict[str, Any]) -> dict[str, Any]:
        """Build the stand-in for ``self`` from tensors in slabs and plain values."""
        if order["arena"] is not None:
            self.block = attach(order["arena"], self.fd)
        self.instance = self._stand_in(order["tree"])
        return {"ok": True}

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Call ``forward`` once and copy its outputs to the slabs it was given."""
        before = self.launches
        outputs = self._call(order)()
        structure, leaves = flatten(outputs)
        described = [_describe_leaf(leaf) for leaf in leaves]
        slabs = [self._tensor(slab) for slab in order["outputs"]]
        for leaf, slab in zip(leaves, slabs, strict=False):
            if type(leaf) is torch.Tensor and leaf.shape == slab.shape and leaf.dtype == slab.dtype:
                slab.copy_(leaf)
        if self.block.is_cuda:
            torch.cuda.synchronize()
        return {"structure": structure, "leaves": described, "launches": self.launches - before}

    def compile(self, order: dict[str, Any]) -> dict[str, Any]:
        """Compile every kernel that ``forward`` launches, for the named architecture, launching none."""
        with compile_only(self.compile_target) as compiled:
            self._call(order)()
        return {"kernels": compiled}

    def time(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run the timing loop, see ``clock.measure``."""
        calls = [self._call({"inputs": inputs}) for inputs in order["inputs"]]
        return {"events": clock.measure(calls, order["count"], cold=order["cold"])}

    def _call(self, order: dict[str, Any]) -> Callable[[], Any]:
        arguments = {name: self._value(value) for name, value in order["inputs"].items()}
        forward, instance = self.module.forward, self.instance
        return lambda: forward(instance, **arguments)

    def _tensor(self, slab: dict[str, Any]) -> torch.Tensor:
        return view(self.block, slab["offset"], slab["shape"], getattr(torch, slab["dtype"]))

    def _value(self, value: Any) -> Any:
        """A JSON value with slabs in it, as the candidate sees it."""
        if isinstance(value, dict):
            if "slab" in value:
                return self._tensor(value["slab"])
            if "tuple" in value:
                return tuple(self._value(item) for item in value["tuple"])
            if "dtype" in value:
                return getattr(torch, value["dtype"])
            if "float" in value:
                return float(value["float"])
        return value

    def _stand_in(self, tree: dict[str, Any]) -> Any:
        values = {name: self._value(value) for name, value in tree["values"].items()}
        children = {name: self._stand_in(child) for name, child in tree["children"].items()}
        if tree["class"] not in VENDOR_LAYERS:
            return StandIn(values | children)
        package, _, name = tree["class"].rpartition(".")
        cls = getattr(sys.modules[package], name)
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                value = torch.nn.Parameter(value, requires_grad=False)
            setattr(layer, name, value)
        return layer

    def _count_launches(self) -> None:
        """Count kernel launches, so that the judge can name a candidate that launches none."""
        from triton.runtime import interpreter, jit

        for cls in (jit.JITFunction, interpreter.InterpretedFunction):
            original = cls.run

            def run(kernel: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                self.launches += 1
                return _original(kernel, *args, **kwargs)

            cls.run = run
        if os.environ.get("TRITON_INTERPRET") == "1":
            # An autotuner has nothing to time in the interpreter: take its first configuration.
            from triton.runtime.autotuner import Autotuner

            from pytest_kernelllm.judge.interpreter import mend_bfloat16

            mend_bfloat16()
            Autotuner.run = _first_configuration


def _first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
    config = self.configs[0]
    return self.fn.run(*args, **{**kwargs, **config.all_kwargs()})


@contextlib.contextmanager
def compile_only(arch: str) -> Iterator[list[str]]:
    """Inside, ``kernel[grid](...)`` compiles for ``arch`` (``sm_90``) instead of launching; no GPU is needed.

    Yields the names of the kernels compiled so far.
    """
    from triton.backends.compiler import GPUTarget
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    target = GPUTarget("cuda", int(arch.removeprefix("sm_").rstrip("af")), 32)
    driver = SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        get_current_stream=lambda device=0: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )
    triton.runtime.driver.set_active(driver)
    compiled: list[str] = []
    launch, tune = JITFunction.run, Autotuner.run

    def compile_one(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("warmup", None)
        result = launch(kernel, *args, warmup=True, **kwargs)
        compiled.append(kernel.fn.__name__)
        return result

    def compile_all(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        for config in tuner.configs:
            tuner.fn.run(*args, **{**kwargs, **config.all_kwargs()})

    JITFunction.run, Autotuner.run = compile_one, compile_all
    try:
        yield compiled
    finally:
        JITFunction.run, Autotuner.run = launch, tune


def _describe_leaf(leaf: Any) -> dict[str, Any]:
    if not isinstance(leaf, torch.Tensor):
        return {"type": type(leaf).__name__}
    return {
        "type": "Tensor" if type(leaf) is torch.Tensor else type(leaf).__qualname__,
        "dtype": str(leaf.dtype).removeprefix("torch."),
        "shape": list(leaf.shape),
        "device": leaf.device.type,
    }


def _describe(error: BaseException, directory: Path) -> dict[str, Any]:
    """The error and the candidate's line it came from; the message is for people only."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).parent == directory:
            line = frame.lineno
    message = " ".join(str(error).split("\nSearch for `cuda")[0].split())  # CUDA's advice helps nobody here
    return {"type": type(error).__name__, "message": message[:600], "line": line}
