"""Tells a kernel module from an answer with a ``ModelNew``."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Literal


def format_of(text: str) -> Literal["modelnew", "kernel_module"]:
    """Returns the format of a file: a kernel module has a top-level ``forward`` and no ``ModelNew``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        has_forward = re.search(r"^def forward\b", text, re.MULTILINE) is not None
        has_model = re.search(r"^class ModelNew\b", text, re.MULTILINE) is not None
    else:
        has_forward = any(isinstance(node, ast.FunctionDef) and node.name == "forward" for node in body)
        has_model = any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in body)
    return "kernel_module" if has_forward and not has_model else "modelnew"
