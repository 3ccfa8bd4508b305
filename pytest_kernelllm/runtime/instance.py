"""A kernel for single modules in memory: their class, which may be somebody else's, and its other instances stay as they are.

The module gets a class of its own: a subclass of its class, under the same name, with another ``forward``. torch's
parametrizations and FSDP change modules in this way. A ``forward`` set on the instance would lie in ``__dict__``, and so
be copied to replicas still bound to the original, stand in the way of pickles, and hide from hooks that swap it as well.
"""

from __future__ import annotations

import copy
import functools
import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from pytest_kernelllm.core.kernel_module import read_supports
from pytest_kernelllm.core.records import Domain
from pytest_kernelllm.runtime.domain import _attributes
from pytest_kernelllm.runtime.install import install
from pytest_kernelllm.runtime.kernel import AGAIN, Kernel, Unavailable, refuse_if_disabled

OWN_CLASS = "__kernelllm_own_class__"
"""Where a class that was made here keeps the first class that was not, which its instances had once."""


class TextKernel(Kernel):
    """A kernel module that is a text, not a file of the project."""

    def __init__(self, name: str, kernel_hash: str, source: str) -> None:
        """``name``: the class it is for; ``source``: the kernel module, byte for byte as it was judged."""
        super().__init__(name, kernel_hash[:12], None, loose=False)
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        """Without what was loaded."""
        return TextKernel, (self.name, self.dotted, self.source)

    @functools.cached_property
    def domains(self) -> tuple[Domain, ...]:
        """What the kernel was verified on.

        Raises:
            Unavailable: no kernel for this process.
        """
        refuse_if_disabled()
        return read_supports(self.source)

    @functools.cached_property
    def forward(self) -> Callable[..., Any]:
        """The kernel module's ``forward``; runs the text, which imports triton.

        Raises:
            Unavailable: it fails.
        """
        file = f"<kernel {self.dotted}>"
        # Triton reads the source of its functions, and must see what was judged.
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(keepends=True), file)
        module = types.ModuleType(f"_kernelllm_{self.dotted}")
        try:
            exec(compile(self.source, file, "exec"), vars(module))
            return module.forward  # type: ignore[no-any-return]  # ours to call, theirs to type
        except Exception as error:
            told = f"the kernel {self.dotted} fails to import ({type(error).__name__}: {error})"
            raise Unavailable(told, AGAIN) from error


@dataclass(frozen=True)
class Swap:
    """One module whose class was swapped."""

    path: str
    module: nn.Module
    before: type[nn.Module]
    after: type[nn.Module]

    def undo(self) -> bool:
        """Give the module its class back; False if somebody else has swapped it since then."""
        if type(self.module) is self.after:
            object.__setattr__(self.module, "__class__", self.before)
        return type(self.module) is self.before


def dispatching(cls: type[nn.Module], kernel: Kernel) -> type[nn.Module]:
    """A class like ``cls``, for ``swap``, whose ``forward`` chooses between the kernel and that of ``cls``.

    Raises:
        TypeError: ``cls`` cannot be derived from, or its ``forward`` is not a plain function.
    """
    made = own_class(cls)
    install(made, kernel)
    return made


def own_class(cls: type[nn.Module]) -> type[nn.Module]:
    """An empty subclass of a module's class, under the same name.

    Its instances pickle as instances of the class they had first, for a pickle may be read where no kernel was verified. Their deep
    copies are of the same class as they are.

    Raises:
        TypeError: ``cls`` cannot be derived from.
    """
    plain = getattr(cls, OWN_CLASS, cls)
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    try:
        made: Any = types.new_class(
            cls.__name__, (cls,), exec_body=lambda space: space.update({**names, OWN_CLASS: plain})
        )
    except Exception as error:  # its own __init_subclass__ or metaclass
        raise TypeError(f"no class can be derived from it ({type(error).__name__}: {error})") from error

    def reduce(self: nn.Module, protocol: Any) -> Any:
        # By the form of protocol 1: the later one insists on the instance's very class.
        parts = super(made, self).__reduce_ex__(min(int(protocol), 1))
        if isinstance(parts, str):
            return parts
        maker, arguments, *rest = parts
        arguments = tuple(plain if each is made else each for each in arguments)
        return (plain if maker is made else maker, arguments, *rest)

    def deepcopy(self: nn.Module, memo: dict[int, Any]) -> Any:
        theirs = getattr(super(made, self), "__deepcopy__", None)
        if theirs is not None:
            twin = theirs(memo)
        else:
            maker, arguments, *rest = reduce(self, 1)
            twin = memo[id(self)] = maker(*copy.deepcopy(arguments, memo))
            if rest and rest[0] is not None:
                twin.__setstate__(copy.deepcopy(rest[0], memo))
        if type(twin) is plain:
            object.__setattr__(twin, "__class__", made)
        return twin

    made.__reduce_ex__, made.__deepcopy__ = reduce, deepcopy
    return made  # type: ignore[no-any-return]  # `type` gives a class


def swap(path: str, module: nn.Module, after: type[nn.Module]) -> Swap:
    """Give a module another class, made by ``dispatching`` or ``own_class`` from its present one."""
    done = Swap(path, module, type(module), after)
    # Not by the module's own __setattr__, which may do anything.
    object.__setattr__(module, "__class__", after)
    return done


def misfit(domain: Domain, module: nn.Module) -> str | None:
    """Why no call of this module as it is can lie in a domain, by its values alone; None if some may."""
    return _attributes(domain, module, {}, {})
