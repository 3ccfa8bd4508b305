"""The text around the code in a prompt: our own template, or the one in a model's script."""

from __future__ import annotations

import ast

PROMPT_VERSION = 3
"""Raised whenever the prompt for an unchanged target changes; stored completions are looked up by it."""

PLACEHOLDER = "{}"

TEMPLATE = """You write GPU kernels. Below is a PyTorch module called Model. Write a module called ModelNew that computes the same \
and runs faster, with its work done by kernels of your own in Triton.

You decide what becomes a kernel. You may put several operations into one kernel, keep operations that PyTorch already does well, \
and reorder a computation as long as its result stays the same up to rounding.

Here is an example of such a module, and of an answer:

```python
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(16, 1024), torch.randn(16, 1024)]


def get_init_inputs():
    return []
```

The answer:

```python
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        count = out.numel()
        add_kernel[(triton.cdiv(count, 1024),)](x, y, out, count, BLOCK=1024)
        return out
```

You are given the following architecture:

```python
{}
```

Write ModelNew for it, with the same constructor arguments, parameter names and outputs as Model. Answer with one fenced python block \
that holds all imports, the Triton kernels and ModelNew, and nothing else: no tests and no explanation.
"""
"""The prompt for models without a template of their own; its one ``{}`` stands for the code."""


def fill(template: str, code: str) -> str:
    """Puts ``code`` in place of the ``{}`` in ``template``; other braces in either stay as they are.

    Raises:
        ValueError: the template does not have exactly one ``{}``.
    """
    if template.count(PLACEHOLDER) != 1:
        raise ValueError(f"a prompt template needs exactly one {{}}, not {template.count(PLACEHOLDER)}")
    return template.replace(PLACEHOLDER, code)


def template_of(script: str) -> str | None:
    """Reads the string ``PROMPT_TEMPLATE`` that a script assigns at module level, for ``fill``; the script is never run.

    Braces that were doubled for ``str.format`` become single.

    Returns:
        The template, or None if there is none, if it is no literal, or if it does not have exactly one placeholder for
        the code.
    """
    text: object = None
    try:
        for statement in ast.parse(script).body:
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            if any(isinstance(target, ast.Name) and target.id == "PROMPT_TEMPLATE" for target in targets):
                text = ast.literal_eval(getattr(statement, "value", None) or "None")
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return _with_one_placeholder(text) if isinstance(text, str) else None


_OPEN, _CLOSE = "\0", "\1"


def _with_one_placeholder(text: str) -> str | None:
    """Returns the text with single braces and exactly one ``{}``, or None.

    In a text for ``str.format`` every brace except the placeholder's is doubled; in a text for ``str.replace`` none
    is. Doubled braces beside a placeholder mean the former.
    """
    hidden = text.replace("{{", _OPEN).replace("}}", _CLOSE)
    if "\0" not in text and "\1" not in text and hidden.count(PLACEHOLDER) == 1:
        rest = hidden.replace(PLACEHOLDER, "")
        if "{" not in rest and "}" not in rest:
            formatted = hidden.replace(_OPEN, "{").replace(_CLOSE, "}")
            if formatted.count(PLACEHOLDER) == 1:  # `{{}}` would become a second placeholder
                return formatted
    return text if text.count(PLACEHOLDER) == 1 else None
