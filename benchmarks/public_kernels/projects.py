"""Says what kernels of each project do without when they stand alone.

They lose caches of launches, logging and the choice between kinds of devices, none of which computes anything. Guards
that make tensors contiguous and contexts that choose a device stay.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.public_kernels.cut import Project


@dataclass(frozen=True)
class _GemsSettings:
    """FlagGems' configurations for NVIDIA's GPUs, which its kernels name."""

    folder: Path

    def written_out(self, call: ast.Call) -> ast.expr:
        """Replaces a call that looks up configurations by the first of them, and its tuner by Triton's."""
        match call:
            case ast.Call(func=ast.Attribute(attr="get_tuned_config"), args=[ast.Constant(value=str(name))]):
                return _expression(f"[{_configuration(_tuned(self.folder)[name][0])}]")
            case ast.Call(
                func=ast.Attribute(attr="get_heuristic_config"), args=[ast.Constant(value=str(name))]
            ):
                return _heuristics(self.folder)[name]
            case ast.Call(func=ast.Name(id="libtuner"), keywords=keywords):
                kept = [keyword for keyword in keywords if keyword.arg in ("configs", "key", "reset_to_zero")]
                return ast.Call(_expression("triton.autotune"), [], kept)
        return call


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@cache
def _tuned(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return yaml.safe_load((folder / "tune_configs.yaml").read_text(encoding="utf-8"))


def _configuration(table: dict[str, Any]) -> str:
    """Returns the first configuration that a table stands for: it lists values, or names lists of them."""
    names = table["param_map"] if table.get("gen") else table

    def first(value: Any) -> Any:
        listed = table.get(value) if isinstance(value, str) else None
        return listed[0] if isinstance(listed, list) else value

    meta = {name: first(value) for name, value in names.get("META", {}).items()}
    others = "".join(f", {name}={first(value)!r}" for name, value in names.items() if name != "META")
    return f"triton.Config({meta!r}{others})"


@cache
def _heuristics(folder: Path) -> dict[str, ast.expr]:
    tree = ast.parse((folder / "heuristics_config_utils.py").read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Dict):
            return {
                key.value: value
                for key, value in zip(statement.value.keys, statement.value.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
    raise KeyError(f"{folder} lists no heuristics")


def _in_one_process(call: ast.Call) -> ast.expr:
    """Replaces what is asked of other processes, of which a kernel that stands alone has none."""
    if not ast.unparse(call.func).startswith("torch.distributed."):
        return call
    return ast.Constant({"get_world_size": 1, "get_rank": 0}.get(ast.unparse(call.func).rpartition(".")[2]))


_NOT_CALLED = "def {name}(*args):\n    raise NotImplementedError"

_LIGER_REPLACED = {
    "infer_device": "def infer_device():\n    return 'cuda'",
    "infer_device_arch": "def infer_device_arch():\n    return 'hopper'",
    "is_npu_available": "def is_npu_available():\n    return False",
    "rsqrt": "from triton.language.extra.libdevice import rsqrt",
    "tanh": "from triton.language.extra.libdevice import tanh",
    "_DTensor": "_DTensor = ()",
    "device_context": "def device_context(device):\n    return torch.cuda.device(device)",
}


def liger(checkout: Path) -> Project:
    """Returns Liger-Kernel's checkout."""
    return Project(checkout / "src", _LIGER_REPLACED, plumbing=("set_large_grf_mode",))


_GEMS_REPLACED = {
    "torch_device_fn": "torch_device_fn = torch.cuda",
    "device": "device = triton.runtime.driver.active.get_active_torch_device().type",
    "core": "from triton import language as core",
    "zeros_like": "from triton.language import zeros_like",
    "_Reduction": "class _Reduction:\n    @staticmethod\n    def get_enum(name):\n"
    "        return ('none', 'mean', 'sum').index(name)",
    "tl_extra_shim": "import triton.language.extra.libdevice as tl_extra_shim",
    "pow": "from triton.language.extra.libdevice import pow",
    "get_device_properties": "get_device_properties = torch.cuda.get_device_properties",
    "is_integer_dtype": "def is_integer_dtype(dtype):\n    return not dtype.is_floating_point",
    "is_boolean_dtype": "def is_boolean_dtype(dtype):\n    return dtype == torch.bool",
    "has_internal_overlapping": "def has_internal_overlapping(x):\n    return False",
    "MemOverlap": "class MemOverlap:\n    Yes = True",
}


def gems(checkout: Path) -> Project:
    """Returns FlagGems' checkout."""
    settings = Path("flag_gems/runtime/backend/_nvidia")
    return Project(
        checkout / "src",
        _GEMS_REPLACED,
        plumbing=("libentry", "logger", "logging"),
        rewrite=_GemsSettings(checkout / "src" / settings).written_out,
        rewritten_from=settings / "heuristics_config_utils.py",
    )


_GUARD = """
def {name}(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        def guarded(argument):
            return {argument} if isinstance(argument, torch.Tensor) else argument

        tensors = [each for each in [*args, *kwargs.values()] if isinstance(each, torch.Tensor)]
        with torch.cuda.device(tensors[0].device) if tensors else contextlib.nullcontext():
            return function(*[guarded(each) for each in args], **{{k: guarded(v) for k, v in kwargs.items()}})
    return wrapper
"""
_FLA_REPLACED = {
    **{name: f"{name} = True" for name in ("IS_NVIDIA", "IS_NVIDIA_HOPPER")},
    **{name: f"{name} = False" for name in ("IS_AMD", "IS_INTEL", "IS_NPU", "IS_NVIDIA_BLACKWELL")},
    **{name: _NOT_CALLED.format(name=name) for name in ("prepare_chunk_indices", "prepare_lens")},
    "autotune_cache_kwargs": "autotune_cache_kwargs = {}",
    "fla_cache_autotune": "from triton import autotune as fla_cache_autotune",
    "get_multiprocessor_count": "def get_multiprocessor_count(index=0):\n    return 132",
    "check_shared_mem": "def check_shared_mem(*args):\n    return True",
    **{
        f"autocast_{name}": f"autocast_{name} = functools.partial(torch.amp.{name}, device_type='cuda')"
        for name in ("custom_fwd", "custom_bwd")
    },
    "input_guard": _GUARD.format(name="input_guard", argument="argument.contiguous()"),
    "device_guard": _GUARD.format(name="device_guard", argument="argument"),
    "functools": "import functools",
    "contextlib": "import contextlib",
    "torch": "import torch",
}


def _fla_call(call: ast.Call) -> ast.expr:
    """Replaces the guard that leaves tensors as they lie, and what the environment may say by its default."""
    match call:
        case ast.Call(func=func, args=[_, default]) if ast.unparse(func) == "os.environ.get":
            return default
        case ast.Call(
            func=ast.Name(id="input_guard"),
            keywords=[ast.keyword(arg="no_guard_contiguous", value=ast.Constant(value=True))],
        ):
            return ast.Name("device_guard", ast.Load())
    return _in_one_process(call)


def fla(checkout: Path) -> Project:
    """Returns flash-linear-attention's checkout."""
    return Project(
        checkout,
        _FLA_REPLACED,
        plumbing=("dispatch", "checkpoint", "tensor_cache", "warnings"),
        rewrite=_fla_call,
    )


def tutorials(checkout: Path) -> Project:
    """Returns Triton's checkout, of which the tutorials are used."""
    return Project(checkout / "python" / "tutorials")


_FLASH_REPLACED = {
    "triton_op": "from torch.library import triton_op",
    **{
        name: f"{name} = functools.partial(torch.amp.{name}, device_type='cuda')"
        for name in ("custom_fwd", "custom_bwd")
    },
    "functools": "import functools",
}


def flash(checkout: Path) -> Project:
    """Returns flash-attention's checkout."""
    return Project(checkout, _FLASH_REPLACED, rewrite=_in_one_process)


PROJECTS: dict[str, Callable[[Path], Project]] = {
    "liger": liger,
    "gems": gems,
    "fla": fla,
    "triton": tutorials,
    "flash": flash,
}
"""What makes a project out of a checkout, by the name of its catalogue and of the command's option."""
