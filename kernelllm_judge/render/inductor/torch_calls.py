"""Reads and writes a wrapper's calls of torch: allocations and library calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from kernelllm_judge.core.syntax import Substitute, call_name, constant_int, expression, read_names
from kernelllm_judge.render.errors import RenderError

ALLOCATIONS = ("empty_strided_cuda", "empty_strided_cpu", "torch.empty_strided", "empty_strided")
MATMULS = ("mm", "addmm", "bmm", "baddbmm", "_addmm")
_ATTENTION = {
    "torch.ops.kernelllm.attention_as_it_is.default": "{}",
    "torch.ops.kernelllm.attention.default": "{}.contiguous()",
    "torch.ops.kernelllm.attention_by_position.default": "{}.transpose(1, 2).contiguous()",
}
"""How attention's result is brought into the order in which it was traced (see ``generate.inductor.library``)."""
_TOPK = "torch.ops.aten.topk.default"
_ATTENTION_DEFAULTS = {
    "attn_mask": "None",
    "dropout_p": "0.0",
    "is_causal": "False",
    "scale": "None",
    "enable_gqa": "False",
}


def is_allocation(node: ast.expr) -> bool:
    """Whether an expression allocates a buffer."""
    return isinstance(node, ast.Call) and call_name(node) in ALLOCATIONS


def result_name(node: ast.expr) -> str:
    """Returns a name for what a library call gives."""
    if isinstance(node, ast.Call) and call_name(node) in _ATTENTION:
        return "attended"
    return "largest" if isinstance(node, ast.Call) and call_name(node) == _TOPK else "product"


def allocation(call: ast.Call) -> tuple[Sequence[ast.expr], Sequence[ast.expr], str]:
    """Returns the shape, strides and dtype (``torch.float32``) of an allocation."""
    named = [k.value for k in call.keywords if k.arg == "dtype"]
    match [*call.args, *named]:
        case [ast.Tuple(shape), ast.Tuple(strides), dtype, *_] if len(shape) == len(strides):
            return shape, strides, ast.unparse(dtype)
    raise RenderError(f"The allocation `{ast.unparse(call)}` is not understood.")


def contiguous_strides(shape: Sequence[ast.expr]) -> list[ast.expr]:
    """Returns the row-major strides of a shape."""
    strides: list[ast.expr] = []
    step: ast.expr = ast.Constant(1)
    for size in reversed(shape):
        strides.insert(0, step)
        step = ast.BinOp(step, ast.Mult(), size) if constant_int(step) != 1 else size
    return strides


def elements(shape: Sequence[ast.expr]) -> ast.expr:
    """How many elements a shape has."""
    count: ast.expr = ast.Constant(1)
    for size in shape:
        count = ast.BinOp(count, ast.Mult(), size)
    return count


def is_contiguous(shape: Sequence[ast.expr], strides: Sequence[ast.expr]) -> bool:
    """Whether strides are row-major; a dimension of size 1 may have any."""
    usual = contiguous_strides(shape)
    return all(constant_int(n) == 1 or same_size(s, u) for n, s, u in zip(shape, strides, usual, strict=True))


def same_size(a: ast.expr, b: ast.expr) -> bool:
    """Whether two size expressions are equal for two choices of the sizes in them."""
    free = sorted(read_names(a) | read_names(b))
    for seed in (11, 101):
        values = {name: seed + 2 * i for i, name in enumerate(free)}
        if evaluate(a, values) is None or evaluate(a, values) != evaluate(b, values):
            return False
    return True


def size_of(node: ast.expr) -> tuple[str, int] | None:
    """Returns ``("x", 0)`` for ``x.shape[0]``, None for any other expression."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=owner, attr="shape"), slice=index):
            dim = constant_int(index)
            return None if dim is None else (ast.unparse(owner), dim)
    return None


def evaluate(node: ast.expr, values: Mapping[str, int]) -> int | None:
    """Evaluates a size expression; returns None if it is not an integer."""
    return constant_int(Substitute({k: ast.Constant(v) for k, v in values.items()}).apply(node))


def vendor_call(call: ast.Call, view: Callable[[ast.expr], ast.expr]) -> ast.Call:
    """Writes a matrix multiplication, convolution, attention or topk with torch's public functions, without ``out=``.

    Args:
        call: the call as the compiler wrote it.
        view: writes an argument.
    """
    name = call_name(call)
    short = name.rpartition(".")[2]
    keywords = {k.arg: k.value for k in call.keywords if k.arg and k.arg != "out"}
    if name.startswith("extern_kernels.") and short in MATMULS:
        kept = [
            ast.keyword(k, v) for k, v in keywords.items() if k in ("alpha", "beta") and constant_int(v) != 1
        ]
        return ast.Call(expression(f"torch.{short.lstrip('_')}"), [view(a) for a in call.args], kept)
    if name in _ATTENTION:
        return _attention(call, view, _ATTENTION[name])
    if name == _TOPK:
        return ast.Call(expression("torch.topk"), [view(each) for each in call.args], call.keywords)
    if name == "extern_kernels.convolution":
        return _convolution([view(a) for a in call.args], {k: view(v) for k, v in keywords.items()})
    operation = name.removeprefix("torch.ops.").removeprefix("extern_kernels.").removesuffix(".default")
    raise RenderError(
        f"The code leaves `{operation}` to PyTorch; a kernel module may leave only matrix multiplications, "
        "convolutions, attention and topk to it."
    )


def ordered(call: ast.expr, layout: tuple[Sequence[ast.expr], Sequence[ast.expr]] | None) -> str:
    """Writes what brings a convolution's result into the order that the kernels after it read, channels last.

    Most libraries write it so if they read it so; this costs nothing then.
    """
    if layout is None or not isinstance(call, ast.Call) or call_name(call) != "extern_kernels.convolution":
        return ""
    last = {4: "channels_last", 5: "channels_last_3d"}.get(len(layout[0]))
    return "" if last is None or is_contiguous(*layout) else f".contiguous(memory_format=torch.{last})"


def _attention(call: ast.Call, view: Callable[[ast.expr], ast.expr], ordered: str) -> ast.Call:
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), call.args[3:], strict=False))
    options |= {k.arg: k.value for k in call.keywords if k.arg}
    kept = [
        ast.keyword(k, view(v)) for k, v in options.items() if ast.unparse(v) != _ATTENTION_DEFAULTS.get(k)
    ]
    function = expression("torch.nn.functional.scaled_dot_product_attention")
    result = ast.Call(function, [view(tensor) for tensor in call.args[:3]], kept)
    whole = expression(ordered.format(ast.unparse(result)))
    assert isinstance(whole, ast.Call)
    return whole


def _convolution(args: list[ast.expr], options: dict[str, ast.expr]) -> ast.Call:
    stride = options.get("stride")
    dims = len(stride.elts) if isinstance(stride, ast.Tuple) else 0
    if dims not in (1, 2, 3):
        raise RenderError("A convolution without plain strides is not understood.")
    transposed = ast.unparse(options.get("transposed", ast.Constant(False))) == "True"
    function = f"torch.nn.functional.conv{'_transpose' if transposed else ''}{dims}d"
    named = ["bias", "stride", "padding", *(["output_padding"] if transposed else []), "groups", "dilation"]
    defaults = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1}
    keywords = []
    for name in named:
        value = options.get(name)
        elements = value.elts if isinstance(value, ast.Tuple) else [value]
        if value is None or all(
            isinstance(e, ast.Constant) and e.value in (defaults.get(name), None) for e in elements
        ):
            continue
        keywords.append(ast.keyword(name, value))
    return ast.Call(expression(function), args, keywords)
