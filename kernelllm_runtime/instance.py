"""Gives single modules in memory a kernel, without changing their class or its other instances.

The module gets a class of its own: a subclass of its class, with the same name and another ``forward``. torch's
parametrizations and FSDP change modules in this way. A ``forward`` set on the instance would be in ``__dict__``, and
would be copied to replicas while bound to the original, break pickles, and hide from code that replaces it as well.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib.util
import io
import linecache
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any

from torch import nn

from kernelllm_runtime.any_kernel import AGAIN, Unavailable, refuse_if_disabled
from kernelllm_runtime.install import install
from kernelllm_runtime.kernel import LOADING, Kernel
from kernelllm_runtime.supports import read_supports
from kernelllm_runtime.targets import Domain

OWN_CLASS = "__kernelllm_own_class__"
"""Attribute of a class that was made here: the original class of its instances."""


class TextKernel(Kernel):
    """A kernel module given as text instead of a file of the project."""

    def __init__(self, name: str, kernel_hash: str, source: str) -> None:
        """``name`` is the class's, ``source`` the kernel module as it was judged."""
        super().__init__(name, kernel_hash[:12], None, loose=False)
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the text, without what was loaded."""
        return TextKernel, (self.name, self.dotted, self.source)

    @functools.cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The domains that the kernel was verified on.

        Raises:
            Unavailable: the kernel cannot be used in this process.
        """
        refuse_if_disabled()
        return read_supports(self.source)

    @functools.cached_property
    def forward(self) -> Callable[..., Any]:
        """The kernel module's ``forward``; runs the text, which imports triton.

        Raises:
            Unavailable: the text raises an exception.
        """
        # Kernels of one program may differ in layout, so the names are those of this text.
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:12]
        file, name = f"<kernel {self.dotted} {digest}>", f"_kernelllm_text_{digest}"
        # Triton reads the source of its functions, which must be what was judged: lines end where Python ends them.
        lines = io.StringIO(self.source, newline=None).readlines()
        linecache.cache[file] = (len(self.source), None, lines, file)
        try:
            with LOADING:
                # torch.compile looks there for what a function reads that it traces.
                if name not in sys.modules:
                    sys.modules[name] = importlib.util.module_from_spec(ModuleSpec(name, None))
                    try:
                        exec(compile(self.source, file, "exec"), vars(sys.modules[name]))
                        sys.modules[name].forward  # noqa: B018  (it has one)
                    except BaseException:
                        del sys.modules[name]
                        raise
                return sys.modules[name].forward  # type: ignore[no-any-return]  # ours to call, theirs to type
        except Exception as error:
            failed = f"the kernel {self.dotted} fails to import ({type(error).__name__}: {error})"
            raise Unavailable(failed, AGAIN) from error


@dataclass(frozen=True)
class Swap:
    """One module whose class was swapped."""

    path: str
    module: nn.Module
    before: type[nn.Module]
    after: type[nn.Module]

    def undo(self) -> bool:
        """Gives the module its class back; returns False if something else changed the class since."""
        if type(self.module) is self.after:
            object.__setattr__(self.module, "__class__", self.before)
        return type(self.module) is self.before


def dispatching(cls: type[nn.Module], kernel: Kernel) -> type[nn.Module]:
    """Returns a class for ``swap`` whose ``forward`` chooses between the kernel and that of ``cls``.

    Raises:
        TypeError: ``cls`` cannot have subclasses, or its ``forward`` is not a plain function.
    """
    made = own_class(cls)
    install(made, kernel)
    return made


def own_class(cls: type[nn.Module]) -> type[nn.Module]:
    """Returns an empty subclass of a module's class, with the same name.

    Its instances pickle as instances of their original class, because a pickle may be loaded where no kernel was
    verified. Their deep copies have the same class as they.

    Raises:
        TypeError: ``cls`` cannot have subclasses.
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
        # In the form of protocol 1: later protocols require the instance's own class.
        parts = super(made, self).__reduce_ex__(min(int(protocol), 1))
        if isinstance(parts, str):
            return parts
        maker, arguments, *rest = parts
        arguments = tuple(plain if each is made else each for each in arguments)
        return (plain if maker is made else maker, arguments, *rest)

    def deepcopy(self: nn.Module, memo: dict[int, Any]) -> Any:
        theirs = getattr(super(made, self), "__deepcopy__", None)
        if theirs is not None:
            copied = theirs(memo)
        else:
            maker, arguments, *rest = reduce(self, 1)
            copied = memo[id(self)] = maker(*copy.deepcopy(arguments, memo))
            if rest and rest[0] is not None:
                copied.__setstate__(copy.deepcopy(rest[0], memo))
        if type(copied) is plain:
            object.__setattr__(copied, "__class__", made)
        return copied

    made.__reduce_ex__, made.__deepcopy__ = reduce, deepcopy
    return made  # type: ignore[no-any-return]  # `type` gives a class


def swap(path: str, module: nn.Module, after: type[nn.Module]) -> Swap:
    """Gives a module another class, made by ``dispatching`` or ``own_class`` from its present one."""
    done = Swap(path, module, type(module), after)
    # The module's own __setattr__ may do anything.
    object.__setattr__(module, "__class__", after)
    return done
