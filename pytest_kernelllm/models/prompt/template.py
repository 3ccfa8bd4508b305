"""The text around the code in a prompt: our own template, or the one in a model's script."""

from __future__ import annotations

import ast
import textwrap

from kernelllm_judge.core.syntax import chain_of

PROMPT_VERSION = 1
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
    """Reads the ``PROMPT_TEMPLATE`` that a script assigns at module level, for ``fill``; the script is never run.

    Braces that were doubled for ``str.format`` become single. Literals, implicit and explicit concatenation,
    ``textwrap.dedent(...)``, ``.strip()`` and the names of other such strings are understood.

    Args:
        script: Python source, such as ``kernelllm.py`` in a model's repository.

    Returns:
        The template, or None if there is none, if it is computed in another way, or if it does not have exactly
        one placeholder for the code.
    """
    try:
        text = _strings(ast.parse(script)).get("PROMPT_TEMPLATE")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if text is None else _with_one_placeholder(text)


def _strings(tree: ast.Module) -> dict[str, str | None]:
    """Returns the strings that are assigned at module level, by name; None for other values."""
    strings: dict[str, str | None] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                strings[target.id] = _string(value, strings)
    return strings


def _string(node: ast.expr, known: dict[str, str | None]) -> str | None:
    """Returns the string that an expression evaluates to, or None if the syntax tree does not show it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([_string(node.left, known), _string(node.right, known)])
    if isinstance(node, ast.JoinedStr):
        return _joined([_part(part, known) for part in node.values])
    return _called(node, known) if isinstance(node, ast.Call) and not node.keywords else None


def _called(node: ast.Call, known: dict[str, str | None]) -> str | None:
    """Evaluates ``text.strip()`` and ``textwrap.dedent(text)``."""
    chain = chain_of(node.func)
    if chain in (("dedent",), ("textwrap", "dedent")) and len(node.args) == 1:
        text = _string(node.args[0], known)
        return None if text is None else textwrap.dedent(text)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "strip" and not node.args:
        text = _string(node.func.value, known)
        return None if text is None else text.strip()
    return None


def _part(node: ast.expr, known: dict[str, str | None]) -> str | None:
    if isinstance(node, ast.FormattedValue):
        plain = node.conversion == -1 and node.format_spec is None
        return _string(node.value, known) if plain else None
    return _string(node, known)


def _joined(parts: list[str | None]) -> str | None:
    return None if None in parts else "".join(part for part in parts if part is not None)


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
