"""Loads a model from its files: safetensors only, none of the model's own code, and only if it fits into memory.

Whatever else there is, is a ``GenerateError`` with one sentence.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.local.files import SPARE, ModelFiles, in_short
from pytest_kernelllm.models.local.norms import replace_norms

GIB = 1 << 30


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded into memory."""

    dtype: str = "auto"
    device_map: str = "auto"
    quantization: str = "none"


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to write."""

    model: Any
    tokenizer: Any
    graph: bool
    """Whether a step can be captured as a CUDA graph: the model is on one GPU, and nothing in it waits for the GPU."""


def load_tokenizer(files: ModelFiles) -> Any:
    """Loads the model's tokenizer."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(files.folder, trust_remote_code=False, local_files_only=True)
    # tokenizers raises plain Exception for a file that it cannot parse.
    except Exception as error:
        raise GenerateError(f"The tokenizer in {files.folder} cannot be loaded: {in_short(error)}.") from None


def load_config(files: ModelFiles) -> Any:
    """Loads the model's configuration."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(files.folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise GenerateError(f"{files.folder} cannot be loaded: {in_short(error)}.") from None


def load_model(files: ModelFiles, options: LoadOptions, tokenizer: Any) -> Loaded:
    """Loads a causal language model onto one GPU, several GPUs or the CPU."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    from pytest_kernelllm.models.local import attention

    config = load_config(files)
    if why_not := _why_not(config):
        raise GenerateError(
            f"{files.folder.name} is a {config.model_type} {why_not}, which `local` does not support: serve it (vLLM, TGI, "
            "`transformers serve`) and set `endpoint`."
        )
    if options.quantization != "none" and importlib.util.find_spec("bitsandbytes") is None:
        raise GenerateError(
            f"quantization={options.quantization} needs bitsandbytes: pip install bitsandbytes."
        )
    place = _place(files, options)
    on_cpu = place == "cpu"
    dtype = _dtype(options, on_cpu)
    arguments: dict[str, Any] = {"dtype": dtype if dtype == "auto" else getattr(torch, dtype)}
    if options.quantization != "none":
        arguments["quantization_config"] = _quantized(options.quantization)
    if not on_cpu:
        arguments["device_map"] = place
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            files.folder,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation=attention.register(),
            output_loading_info=True,
            **arguments,
        )
    except torch.OutOfMemoryError:
        raise GenerateError(_too_large(_needed(files, options), _free(), "GPU memory")) from None
    except (OSError, ValueError, LookupError, ImportError, RuntimeError, SafetensorError) as error:
        raise GenerateError(f"{files.folder} cannot be loaded: {in_short(error)}.") from None
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise GenerateError(
            f"{files.folder} lacks {len(missing)} of the model's weights ({missing[0]}…): download it again."
        )
    devices = {parameter.device for parameter in model.parameters()}
    graph = len(devices) == 1 and not on_cpu and options.quantization != "8bit"
    model.eval()
    if graph:
        replace_norms(model)
    return Loaded(model, tokenizer, graph)


def _why_not(config: Any) -> str:
    """Says in the middle of a sentence why ``Decoder`` cannot run a model; empty if it can."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, DynamicCache
    from transformers.cache_utils import DynamicLayer

    kind = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if kind is None:
        return "that does not continue text"
    if not getattr(kind, "_supports_attention_backend", False):
        return "with attention of its own"
    if not all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers):
        return "with layers that do not see the whole text"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        return "whose positions depend on how long the other texts in its batch are"
    return ""


def _dtype(options: LoadOptions, on_cpu: bool) -> str:
    return "float32" if options.dtype == "auto" and on_cpu else options.dtype


def _place(files: ModelFiles, options: LoadOptions) -> str:
    """Returns the device map for transformers: ``cpu``, ``cuda:1``, or ``auto`` for all GPUs."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", options.device_map):
        raise GenerateError(f"device_map={options.device_map} is not one of auto, cpu, cuda and cuda:NUMBER.")
    if options.device_map == "cpu" or not torch.cuda.is_available():
        if options.device_map.startswith("cuda"):
            raise GenerateError(f"device_map={options.device_map}, but PyTorch sees no GPU.")
        needed, there = _needed(files, options, on_cpu=True), _free_ram()
        if needed > there:
            raise GenerateError(_too_large(needed, [there], "memory"))
        return "cpu"
    free, needed = _free(), _needed(files, options)
    if options.device_map != "auto":
        device = torch.device(options.device_map).index or 0
        if device >= len(free):
            raise GenerateError(f"device_map={options.device_map}, but there are {len(free)} GPUs.")
        if needed > free[device]:
            raise GenerateError(_too_large(needed, free[device : device + 1], "GPU memory"))
        return f"cuda:{device}"
    if needed <= max(free):
        return f"cuda:{free.index(max(free))}"
    if needed <= sum(free) and importlib.util.find_spec("accelerate") is not None:
        return "auto"
    raise GenerateError(_too_large(needed, free, "GPU memory"))


def _needed(files: ModelFiles, options: LoadOptions, on_cpu: bool = False) -> int:
    return files.weight_bytes(_dtype(options, on_cpu), options.quantization) + SPARE


def _free() -> list[int]:
    """Returns the free bytes of each GPU."""
    return [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]


def _free_ram() -> int:
    """Returns the bytes of memory that are available without swapping."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else 1 << 62


def _too_large(needed: int, free: Sequence[int], memory: str) -> str:
    there = ", ".join(f"{part / GIB:.1f}" for part in free)
    return (
        f"The model needs {needed / GIB:.1f} GiB of {memory} and {there} GiB are free: free some, set "
        "`quantization` to 8bit or 4bit, or use an endpoint."
    )


def _quantized(kind: str) -> Any:
    from transformers import BitsAndBytesConfig

    if kind == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
