"""The worker: the process in which one candidate runs. Untrusted once the candidate is loaded.

It handles ``REQUESTS`` on its channel. It gets inputs and writes outputs; it never gets expected outputs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.arguments import nested
from kernelllm_judge.shared import leaves
from kernelllm_judge.shared.buffers import attach
from kernelllm_judge.shared.channel import Channel, ChannelClosed
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.shared.watch import OperationWatch
from kernelllm_judge.worker import surroundings
from kernelllm_judge.worker.absent_gpu import NotCompiled, answer_for_gpu, compile_only
from kernelllm_judge.worker.announcing import Announcer
from kernelllm_judge.worker.backward import BothPasses, Waiting
from kernelllm_judge.worker.coverage import Coverage
from kernelllm_judge.worker.errors import describe
from kernelllm_judge.worker.kept import Kept
from kernelllm_judge.worker.launches import LaunchRecorder, milliseconds
from kernelllm_judge.worker.stand_in import Builder, Decoder
from kernelllm_runtime.states import entered

STATES = ("elsewhere", "frozen")
"""Ways of calling ``forward`` in other states, see ``kernelllm_runtime.states``."""

WATCHED = frozenset({"watched", "sanitized", "reversed", *STATES, "no kernels"})
"""Ways of calling ``forward`` that are not timed."""

REQUESTS = ("ready", "load", "state", "run", "loop", "share", "decide", "compile", "construct", "trace")

CACHED = 1 << 28
"""Bytes of GPU memory that a worker may keep for its next call."""


class Worker:
    """Answers the requests of one channel; ``directory`` is the worker's scratch folder."""

    def __init__(self, channel: Channel, directory: Path, fd: int, compile_target: str) -> None:
        """``fd`` is the file of shared buffers, -1 on a GPU; ``compile_target`` is for compile-only workers."""
        self.channel = channel
        self.directory = directory
        self.fd = fd
        self.compile_target = compile_target
        self.module = ModuleType("none")
        self.kept = Kept(self.module)
        self.instance: Any = None
        self.state_tensors: dict[str, torch.Tensor] = {}
        self.asked: list[str] = []
        """What the candidate asked for and only the target has, in words."""
        self.decoder = Decoder(self.asked)
        self.launches = LaunchRecorder()
        self.coverage = Coverage()
        self.tuning: Any = None
        self.tracer: Any = None
        self.sites: Any = None
        """What the candidate's kernels have decided so far, see ``sites``."""
        self.clock = GpuClock()
        self.waiting: Waiting = contextlib.nullcontext
        """See ``Announcer.waiting``."""

    def serve(self) -> None:
        """Answers requests until the judge closes the channel."""
        handlers = {name: getattr(self, name) for name in REQUESTS}
        while True:
            try:
                request = self.channel.receive()
            except ChannelClosed:
                return
            try:
                reply = handlers[request["op"]](request)
            except MemoryFault as fault:
                reply = {"fault": str(fault)}
            except Exception as error:  # whatever the candidate raises is reported
                reply = {"error": describe(error, self.directory)}
            if request.get("how") in WATCHED:
                _release_cache()
            self.channel.send(reply)

    def ready(self, request: dict[str, Any]) -> dict[str, Any]:
        """On a GPU, creates this process's context on it and limits its memory: other processes use the GPU, too."""
        if request["memory_share"]:
            accelerator.limit_memory(request["memory_share"])
            torch.zeros(1, device=accelerator.gpu())
            self.waiting = Announcer(self.channel).waiting
        return {"ok": True}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Imports the kernel module from its source."""
        path = self.directory / "kernel_module.py"
        path.write_text(request["source"], encoding="utf-8")
        self._prepare_triton()
        spec = importlib.util.spec_from_file_location("kernel_module", path)
        assert spec is not None and spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        sys.modules["kernel_module"] = self.module
        self.coverage.load(self.module, request["source"], str(path))
        self.kept = Kept(self.module)
        if not callable(getattr(self.module, "forward", None)):
            raise TypeError("the kernel module has no function `forward`")
        return {"ok": True}

    def state(self, request: dict[str, Any]) -> dict[str, Any]:
        """Builds the stand-in for ``self`` from tensors in shared buffers and plain values."""
        if request["allocator"] is not None:
            self.decoder.block = attach(request["allocator"], self.fd)
        self.state_tensors = {}
        self.instance = Builder(self.decoder.value, self.state_tensors, self.asked).build(request["tree"])
        return {"ok": True}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Calls ``forward`` once, copies its outputs to the given buffers, and describes the call.

        The request's ``how`` is ``timed`` (on a GPU, behind ``flushes`` overwrites of L2) or ``watched``: torch's
        operations are counted, memory is guarded. So are they with ``sanitized`` (every access is checked in Triton's
        interpreter), ``reversed`` (so is the order of programs there), ``STATES`` and ``no kernels`` (none is launched).
        """
        call, inputs = self._call(request["inputs"], request.get("grad"))
        before, around = self.launches.count, surroundings.present()
        passed = call.keywords if isinstance(call, functools.partial) else {}
        held = surroundings.contents(passed)
        given = _tensors({**self.state_tensors, **inputs})
        placed = leaves.placed(given)
        required = {name: tensor.requires_grad for name, tensor in given.items()}
        report: dict[str, Any] = {}
        if request["how"] == "timed":
            peak = accelerator.PeakMemory()
            with self.coverage.left_out():
                outputs, report["microseconds"] = self.clock.one(call, request["flushes"])
            report["peak"] = peak.bytes
        else:
            watch = OperationWatch()
            with (
                self.launches.watched(watch),
                self._condition(request["how"], inputs),
                self._sanitized(request, inputs, report),
                self._recorded(request, report),
            ):
                outputs = call()
            report |= {"operations": dict(watch.elements), "broken": watch.broken_guards()}
        left, grad = surroundings.changed(around), request.get("grad", {"again": ""})
        structure, flat = leaves.flatten(outputs)
        if surroundings.contents(passed) != held:
            left.append("what its arguments hold")
        if "grad" not in request and any(type(leaf) is torch.Tensor and leaf.requires_grad for leaf in flat):
            left.append("whether its outputs require gradients")
        changed = (name for name in given if given[name].requires_grad != required[name])
        left += [f"whether {name} requires gradients" for name in changed]
        report |= {
            "structure": structure,
            "leaves": [leaves.describe(leaf) for leaf in flat],
            "shared": leaves.shared(flat, given),
            "held": leaves.held(flat, given),
            "moved": [
                name
                for name, place in leaves.placed(given).items()
                if place != placed[name] and grad["again"] != "changed"  # which changes them itself
            ],
            "launches": self.launches.count - before,
            "left": left,
            "asked": self.asked[:2],
            "kept": [] if request["how"] == "timed" else self.kept.changed()[:2],
            "decided": self.coverage.taken(),
        }
        self.asked.clear()
        self._write(flat, call, request)
        return report

    def loop(self, request: dict[str, Any]) -> dict[str, Any]:
        """Times many calls, with their backward passes if asked, see ``GpuClock.many``; writes what the last one gave."""
        calls = [self._call(inputs, request.get("grad"))[0] for inputs in request["inputs"]]
        with self.coverage.left_out():
            outputs, events = self.clock.many(calls, request["count"], request["flushes"])
        structure, flat = leaves.flatten(outputs)
        self._write(flat, calls[(request["count"] - 1) % len(calls)], request)
        return {"structure": structure, "leaves": [leaves.describe(leaf) for leaf in flat], "events": events}

    def share(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measures the ms that a call takes on the GPU, and those that the candidate's own launches take."""
        call, _ = self._call(request["inputs"])
        with self.launches.timed() as spans, self.coverage.left_out():
            _, microseconds = self.clock.one(call, request["flushes"])
        return {"own": milliseconds(spans), "all": microseconds / 1000.0}

    def decide(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns what ``Coverage.of_calls`` does. Arguments are as large as stated, and hold anything."""
        calls = (partial(lambda inputs: self._call(inputs)[0](), inputs) for inputs in request["calls"])
        return {"calls": self.coverage.of_calls(calls, self.launches, request["seconds"])}

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compiles every kernel that ``forward`` launches for the GPU architecture, without launching any."""
        with compile_only(self.compile_target) as compiled:
            try:
                self._call(request["inputs"])[0]()
            except NotCompiled as failure:
                assert failure.__cause__ is not None
                return {"refused": describe(failure.__cause__, self.directory)}
        return {"kernels": compiled}

    def trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Describes what calls of ``forward`` launch, at any sizes: tensors have no memory meanwhile."""
        if self.tracer is None:
            from kernelllm_judge.worker.tracing import Tracer

            self.tracer = Tracer()
        device = self.decoder.block.device
        before = self.decoder.block, self.state_tensors, self.instance
        self.decoder.block = torch.empty(0, dtype=torch.uint8, device="meta")
        runs: list[dict[str, Any]] = []
        try:
            for each in request["calls"]:
                self.state({"allocator": None, "tree": request["tree"]})
                try:
                    call, inputs = self._call(each["inputs"])
                    held = self.state_tensors.items()
                    parameters = {k: v for k, v in held if isinstance(v, torch.nn.Parameter)}
                    sources = _tensors({**inputs, **parameters}) if request["grad"] else None
                    runs.append(self.tracer.trace(call, device, each["variant"], sources))
                except Exception as error:  # what needs values, and all else that a candidate raises
                    runs.append({"error": describe(error, self.directory)})
        finally:
            self.decoder.block, self.state_tensors, self.instance = before
        texts, self.tracer.texts = self.tracer.texts, {}
        return {"runs": runs, "kernels": texts}

    def construct(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs the constructor of a completion, and describes what it makes."""
        from kernelllm_judge.worker.constructing import construct

        return construct(request, self.directory)

    def _call(
        self, inputs: dict[str, Any], grad: dict[str, Any] | None = None
    ) -> tuple[Callable[[], Any], dict[str, Any]]:
        """Returns a call of ``forward``, with its backward pass if ``grad`` asks for gradients, and its arguments."""
        arguments = {name: self.decoder.value(value) for name, value in inputs.items()}
        forward, instance, passed = self.module.forward, self.instance, nested(arguments)
        call = functools.partial(forward, instance, **passed)
        if grad is None:
            return call, arguments
        named = _tensors({**arguments, **self.state_tensors})
        return BothPasses(call, named, grad, self.decoder.tensor, self.waiting), arguments

    def _condition(self, how: str, inputs: dict[str, Any]) -> contextlib.AbstractContextManager[object]:
        if how in STATES:
            return entered(
                STATES.index(how) + 1, [*_tensors(inputs).values()], [*self.state_tensors.values()]
            )
        if how == "no kernels":
            return self.launches.left_out()
        if how == "reversed" and os.environ.get("TRITON_INTERPRET") == "1":
            from kernelllm_judge.worker.gpu_semantics import last_program_first

            return last_program_first()
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _recorded(self, request: dict[str, Any], report: dict[str, Any]) -> Iterator[None]:
        """A context that adds what kernels decided to ``report``, if the request asks for it."""
        if not {"sites", "mutant"} & request.keys():
            yield
            return
        from kernelllm_judge.worker.operations import Operations

        self.sites = sites = self.sites or Operations(str(self.directory / "kernel_module.py"))
        if (mutant := request.get("mutant")) is not None:
            with sites.tracking(mutant):
                yield
            report |= {"mutated": sites.mutated} if mutant else {"mutable": sites.found()}
            return
        forced = request["sites"].get("forced")
        with sites.recording(forced):
            yield
        report |= {"forced": sites.times} if forced else {"sites": sites.report()}

    @contextlib.contextmanager
    def _sanitized(
        self, request: dict[str, Any], inputs: dict[str, Any], report: dict[str, Any]
    ) -> Iterator[None]:
        """A context that adds the first memory fault, in words, to ``report``, if the request asks for it."""
        if request["how"] != "sanitized":
            yield
            return
        from kernelllm_judge.worker.sanitizer.sanitizer import Sanitizer

        tensors = {f"the input `{name}`": tensor for name, tensor in _tensors(inputs).items()}
        tensors |= {f"`{name}`": tensor for name, tensor in self.state_tensors.items()}
        for i, given in enumerate(request.get("grad", {"outputs": ()})["outputs"]):
            if given is not None:
                tensors[f"the gradient of output {i}"] = self.decoder.tensor(given["buffer"])
        sanitizer = Sanitizer(self.decoder.block, tensors, str(self.directory / "kernel_module.py"))
        self.tuning.sanitizer = sanitizer if request["all_configurations"] else None
        self.tuning.turn += request["all_configurations"]
        try:
            with sanitizer.watching():
                yield
        except Exception as error:
            if sanitizer.fault is None:
                raise
            raise MemoryFault(sanitizer.fault) from error
        finally:
            self.tuning.sanitizer = None
        report["fault"] = sanitizer.fault

    def _write(self, flat: list[Any], call: Callable[[], Any], request: dict[str, Any]) -> None:
        """Copies outputs and gradients to their buffers where shape and dtype match; the judge rejects all others."""
        pairs = [*zip(flat, request["outputs"], strict=False)]
        if isinstance(call, BothPasses):
            pairs += zip(call.gradients, request["grad"]["buffers"], strict=False)
        for leaf, description in pairs:
            buffer = self.decoder.tensor(description)
            if type(leaf) is torch.Tensor and leaf.shape == buffer.shape and leaf.dtype == buffer.dtype:
                buffer.copy_(leaf)
        if accelerator.is_gpu(self.decoder.block.device):
            accelerator.synchronize()

    def _prepare_triton(self) -> None:
        self.launches.install()
        if self.compile_target:
            answer_for_gpu()
        if os.environ.get("TRITON_INTERPRET") == "1":
            from triton.runtime.autotuner import Autotuner

            from kernelllm_judge.worker.tuning import Tuning

            self.tuning = tuning = Tuning()
            Autotuner.run = lambda tuner, *args, **kwargs: tuning.run(tuner, *args, **kwargs)


class MemoryFault(Exception):
    """A kernel accessed memory wrongly, and the call failed afterwards; the text says what was wrong."""


def _tensors(values: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _release_cache() -> None:
    """Gives cached GPU memory back, where it is much: the judge may need it."""
    if accelerator.in_use() and accelerator.cached_bytes() > CACHED:
        accelerator.empty_cache()
