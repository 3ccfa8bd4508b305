"""Decides which calls of an adopted class its kernel may run, and calls it."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from kernelllm_runtime.any_kernel import AGAIN, AnyKernel, Unavailable
from kernelllm_runtime.domain import PLAIN, SCALARS, is_default, matches
from kernelllm_runtime.generated import define
from kernelllm_runtime.leaves import all_leaves
from kernelllm_runtime.methods import overridden
from kernelllm_runtime.parameters import keywords, passed
from kernelllm_runtime.returned import class_named
from kernelllm_runtime.second_order import first_order_only
from kernelllm_runtime.targets import Domain

Parameter = inspect.Parameter


class Scope:
    """One adopted class and its kernel. ``torch.compile`` traces ``outside``."""

    def __init__(self, cls: type, original: types.FunctionType, kernel: AnyKernel) -> None:
        """``cls`` is the adopted class, ``original`` its own forward."""
        self.cls, self.kernel = cls, kernel
        parameters = list(inspect.signature(original).parameters.values())[1:]
        self.signature = inspect.Signature(parameters)
        fixed = [each for each in parameters if each.kind is not Parameter.VAR_POSITIONAL]
        self.names = tuple(each.name for each in fixed)
        self.defaults = tuple(each.default for each in fixed)
        self.device_type = device_type()
        # Computed on demand; Dynamo cannot trace the lock in functools.cached_property.
        self._domains: tuple[Domain, ...] | None = None
        self._taken: tuple[str, ...] | None = None
        self._run: Callable[..., Any] | None = None

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | str:
        """Returns the arguments of a call in the order of the parameters, with defaults; or why they do not fit.

        What goes into ``**kwargs`` is a dict, or None where nothing does.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"the arguments do not fit forward ({error})"
        if further := set(bound.arguments) - set(self.names):
            return f"arguments are passed through `*` ({', '.join(sorted(further))})"
        bound.apply_defaults()
        if name := keywords(self.signature):
            bound.arguments[name] = bound.arguments[name] or None
        return tuple(bound.arguments[name] for name in self.names)

    def outside(self, module: nn.Module, values: Sequence[Any]) -> str | None:
        """Returns why a call is outside every domain; None if it is inside one and the kernel accepts it.

        Raises:
            Unavailable: the kernel cannot be used at all.
        """
        domains = self.domains
        for value in all_leaves(values):
            if type(value) not in PLAIN and type(value) not in SCALARS:
                return f"an argument is a {type(value).__qualname__}, neither a plain tensor nor a number"
        if differs := overridden(module, self.cls):
            return differs
        arguments = dict(zip(self.names, values, strict=True))
        bound = inspect.BoundArguments(self.signature, arguments)
        reasons = [matches(domain, module, bound, self.device_type) for domain in domains]
        if not domains or None not in reasons:
            several = "".join(f"; for domain {n} of {len(domains)}: {r}" for n, r in enumerate(reasons, 1))
            return (
                reasons[0] if len(reasons) == 1 else (several.removeprefix("; ") or "it supports no domain")
            )
        for name, value in arguments.items():
            if name not in self.taken and not is_default(self.signature.parameters[name], value):
                return f"the kernel's forward does not take `{name}`"
        return None

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The domains that the kernel was verified on.

        Raises:
            Unavailable: the kernel cannot be used in this process.
        """
        if self._domains is None:
            self._domains = self.kernel.domains
        return self._domains

    @property
    def taken(self) -> tuple[str, ...]:
        """The parameters of the kernel's ``forward`` without ``self``: the first ones of the original.

        Raises:
            Unavailable: there is no kernel, or it has other parameters or defaults.
        """
        if self._taken is None:
            self._taken = _taken(self.kernel, self.signature)
        return self._taken

    @property
    def run(self) -> Callable[..., Any]:
        """The kernel's ``forward``, called with the module and all values by position.

        Raises:
            Unavailable: as for ``taken``.
        """
        if self._run is None:
            run = _positional(self.kernel, self.signature, self.names, self.taken)
            run = first_order_only(run) if any(each.grad for each in self.domains) else run
            name = next((each.returns for each in self.domains if each.returns), "")
            self._run = _returning(run, class_named(name)) if name else run
        return self._run


def _taken(kernel: AnyKernel, signature: inspect.Signature) -> tuple[str, ...]:
    theirs = list(inspect.signature(kernel.forward).parameters.values())[1:]
    ours = list(signature.parameters.values())
    for index, parameter in enumerate(theirs):
        problem = None
        if index >= len(ours) or parameter.name != ours[index].name:
            problem = f"has another parameter `{parameter.name}`"
        elif parameter.default is not parameter.empty and parameter.default != ours[index].default:
            problem = f"has another default for `{parameter.name}`"
        if problem:
            raise Unavailable(f"forward of {kernel.dotted} {problem}", AGAIN)
    return tuple(parameter.name for parameter in theirs)


def _positional(
    kernel: AnyKernel, signature: inspect.Signature, names: Sequence[str], taken: Sequence[str]
) -> Callable[..., Any]:
    ours = [signature.parameters[name] for name in names]
    theirs = [each for each in ours if each.name in taken]
    by_name = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
    if theirs == ours and all(each.kind not in by_name for each in ours):
        return kernel.forward
    accepted = ", ".join(("kernelllm_self", *names))
    further = keywords(signature)
    handed = ", ".join(("kernelllm_self", *map(passed, theirs)))
    if further in (each.name for each in theirs):
        handed = handed.replace(f"**{further}", f"**({further} or {{}})")
    text = f"def run({accepted}):\n    return kernelllm_kernel({handed})"
    return define("run", text, {"kernelllm_kernel": kernel.forward})


def _returning(run: Callable[..., Any], cls: type) -> Callable[..., Any]:
    """``run`` with an instance of a dataclass in place of the dict of its fields."""

    def run_returning(*values: Any) -> Any:
        found = run(*values)
        return cls(**found) if type(found) is dict else found

    return run_returning


def device_type() -> str:
    """Returns the type of device that kernels run on: ``cpu`` in Triton's interpreter, else ``cuda``."""
    variables = (os.environ.get("KERNELLLM_INTERPRET"), os.environ.get("TRITON_INTERPRET"))
    return "cpu" if variables == ("1", "1") else "cuda"
