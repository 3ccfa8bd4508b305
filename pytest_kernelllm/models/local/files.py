"""Finds a model's files in a folder or in Hugging Face's cache, or downloads them. Imports neither torch nor transformers.

What is missing or damaged is a ``GenerateError``: one sentence that says why and what to do.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelllm_judge.core.shorten import whole
from pytest_kernelllm.core.words import command
from pytest_kernelllm.generate.protocol import GenerateError

PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "kernelllm.py"]
"""The files that are downloaded: no pickled weights, and of the model's own Python only a script that is never run."""

EXCLUDED = ["*/*", "consolidated*"]
"""The same weights in other formats."""

SPARE = 1 << 30
"""Bytes of memory that must be free besides the weights, for CUDA and for one sample's keys and values."""

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
_FLOATS = ("F64", "F32", "F16", "BF16")
_QUANTIZED = {"8bit": 1.0, "4bit": 0.5625}
"""Bytes per weight; 4-bit weights have a float32 scale for every 64."""


@dataclass(frozen=True)
class ModelFiles:
    """The folder with a model's files, and their commit."""

    folder: Path
    commit: str
    """The Hub's commit hash, or a digest of a folder's contents."""

    def template_script(self) -> str | None:
        """Returns the text of the model's ``kernelllm.py``, or None if it has none."""
        script = self.folder / "kernelllm.py"
        return script.read_text(encoding="utf-8", errors="replace") if script.is_file() else None

    def weights(self) -> list[Path]:
        """Lists the safetensors files to load: those in the index, if there is one."""
        indexed = _indexed(self.folder)
        found = sorted(self.folder / name for name in indexed or _weight_files(self.folder))
        if not found:
            raise GenerateError(
                f"{self.folder} holds no *.safetensors file; other weights are pickles, which may run code, "
                "and are never loaded: convert them, or name another `model`."
            )
        return found

    def weight_bytes(self, dtype: str, quantization: str) -> int:
        """Returns the bytes of memory that the weights need."""
        if dtype == "auto":
            dtype = _own_dtype(self.folder)
        total = 0.0
        for path in self.weights():
            for stored, shape in _tensors(path):
                count = math.prod(shape)
                if quantization != "none" and len(shape) == 2:
                    total += count * _QUANTIZED[quantization]
                elif stored in _FLOATS and dtype in _ITEMSIZE:
                    total += count * _ITEMSIZE[dtype]
                else:
                    total += count * _BYTES.get(stored, 1)
        return int(total)


def _tensors(path: Path) -> list[tuple[str, list[int]]]:
    """Reads dtype and shape of the tensors in a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            parts = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118  # it is no dict
            return [(part.get_dtype(), part.get_shape()) for part in parts]
    except (OSError, SafetensorError) as error:
        raise GenerateError(
            f"{path} cannot be read as safetensors ({in_short(error)}): delete it, and it is downloaded again."
        ) from None


def folder_of(model: str) -> Path | None:
    """Returns the folder that ``model`` names, or None if it is a name on the Hub."""
    folder = Path(model).expanduser()
    return folder if folder.is_dir() else None


def find_cached(model: str, revision: str) -> ModelFiles | None:
    """Returns the model's files if they are complete on this machine, without using the network; else None."""
    folder = folder_of(model)
    if folder is not None:
        return ModelFiles(folder, _digest(folder))
    try:
        found = _snapshot(model, revision, local_files_only=True)
    except (OSError, ValueError):
        return None
    return found if _complete(found.folder) else None


def why_unusable(model: str, revision: str, dtype: str, quantization: str, free: int) -> str:
    """Says why a model cannot be used at once in ``free`` bytes of GPU memory; empty if it can."""
    if importlib.util.find_spec("transformers") is None:
        return "transformers, which a local model needs, is not installed"
    from huggingface_hub import constants

    cached = Path(constants.HF_HUB_CACHE) / f"models--{model.replace('/', '--')}"
    if folder_of(model) is None and not cached.is_dir():
        return f"{model} is not in the cache"
    try:
        files = find_cached(model, revision)
        if files is None:
            return f"{model} is not complete in the cache"
        needed = files.weight_bytes(dtype, quantization) + SPARE
    except GenerateError as error:
        return str(error).rstrip(".")
    if needed > free:
        return f"{model} needs {needed / 2**30:.1f} GiB of GPU memory and {free / 2**30:.1f} are free"
    return ""


def _snapshot(model: str, revision: str, *, local_files_only: bool = False) -> ModelFiles:
    """Calls ``huggingface_hub.snapshot_download``, whose errors pass through."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise GenerateError(
            "A local model needs huggingface_hub, which is not installed: pip install 'pytest-kernelllm[local]'."
        ) from None
    path = Path(
        snapshot_download(
            model,
            revision=revision or None,
            allow_patterns=PATTERNS,
            ignore_patterns=EXCLUDED,
            local_files_only=local_files_only,
        )
    )
    return ModelFiles(path, path.name)


def _complete(folder: Path) -> bool:
    """Whether config, tokenizer and every weight file in the index exist."""
    indexed = _indexed(folder)
    weights = _weight_files(folder) if indexed is None else indexed
    # An interrupted download leaves shards without an index.
    whole = indexed is not None or not any("-of-" in name for name in weights)
    return (
        whole
        and bool(weights)
        and (folder / "config.json").is_file()
        and any((folder / name).is_file() for name in _TOKENIZERS)
        and all((folder / name).is_file() for name in weights)
    )


def _indexed(folder: Path) -> set[str] | None:
    """Returns the weight files in the index, or None if there is no readable index."""
    try:
        text = (folder / "model.safetensors.index.json").read_text(encoding="utf-8")
        return {str(name) for name in json.loads(text)["weight_map"].values()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _weight_files(folder: Path) -> set[str]:
    one = folder / "model.safetensors"
    return {one.name} if one.is_file() else {path.name for path in folder.glob("*.safetensors")}


def _own_dtype(folder: Path) -> str:
    """Returns the dtype in the config; empty if it names none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return str(config.get("dtype") or config.get("torch_dtype") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def fetch(model: str, revision: str, progress: Callable[[str], None]) -> ModelFiles:
    """Returns the model's files; downloads them from the Hub if they are not in its cache."""
    if found := find_cached(model, revision):
        return found
    named = f"{model}@{revision}" if revision else model
    progress(f"downloading {named} (first use)")
    try:
        return _snapshot(model, revision)
    except GenerateError:
        raise
    except Exception as error:  # the client's HTTP library has its own classes, which change with its version
        raise GenerateError(_why_not(error, model, revision, named)) from None


def _why_not(error: Exception, model: str, revision: str, named: str) -> str:
    """Says in a sentence why a model could not be downloaded, and what to do."""
    from huggingface_hub import errors

    sentences = {
        errors.HFValidationError: f"The model {model} is neither a folder nor a name on the Hugging Face Hub (owner/name).",
        errors.GatedRepoError: f"{named} is gated: accept its conditions on https://huggingface.co/{model}, then `hf auth login`.",
        errors.RevisionNotFoundError: f"{model} has no revision {revision}: name a commit hash, branch or tag.",
        errors.RepositoryNotFoundError: f"There is no model {model} on the Hugging Face Hub, or it is private: check its "
        "name, or `hf auth login`.",
        errors.LocalEntryNotFoundError: f"{named} is not in the cache and the Hugging Face Hub cannot be reached (offline?): "
        f"run {command('hf', 'download', model)} where there is a network.",
    }
    found = next((text for kind, text in sentences.items() if isinstance(error, kind)), "")
    if not found and isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        found = f"The disk is full, so {named} could not be downloaded: free some space, or set HF_HOME to another disk."
    return (
        found or f"{named} could not be downloaded ({in_short(error)}): try again; complete files are kept."
    )


def in_short(error: Exception) -> str:
    """Returns the start of an error's text on one line, or the name of its type if it has no text."""
    return whole(error).rstrip(".") or type(error).__name__


def _digest(folder: Path) -> str:
    """Returns a digest of a folder's state: of small files by content, of large ones by size and time."""
    digest = hashlib.sha256()
    for path in sorted(p for pattern in PATTERNS for p in folder.glob(pattern)):
        status = path.stat()
        content = path.read_bytes() if status.st_size < 1 << 26 else f"{status.st_mtime_ns}".encode()
        digest.update(f"{path.name} {status.st_size} ".encode() + content)
    return digest.hexdigest()[:16]
