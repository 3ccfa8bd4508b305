"""What the results of ``causes.py`` say: which kernel belongs to whom, and why a call takes longer than the roofline, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any

BELOW = 0.9
"""Share of the roofline; problems that reach it need no cause."""

PART = 0.1
"""Share of a call's time from which on a part of it is named."""

FAST = 0.85
"""Share of the bandwidth from which on a kernel's own speed is no cause…"""

MORE = 1.1
"""…but what it moves may be, if the own kernels move so many times the bytes that the roofline counts."""

_LAYOUT = re.compile(r"n(chw|hwc|cdhw|dhwc)To|(convert|transpose)Tensor|tensorTransform|im2col|vol2col", re.I)
"""Kernels of the library that only change a layout, also where cuDNN launches them for a convolution."""

_PRODUCT = re.compile(
    r"gemm|gemv|conv(?!ert)|[fdw](prop|grad)|winograd|cutlass|xmma|cask|nvjet|cublas|split_?k|dot_kernel|fft|offsetsKernel|"
    r"fmha|flash|attention|sdpa",
    re.I,
)

Result = dict[str, Any]


def kind_of(name: str, own: Container[str]) -> str:
    """Returns whose kernel it is: ``own``, ``product`` (the library's, convolutions included), or ``other``."""
    if name in own:
        return "own"
    return "product" if _PRODUCT.search(name) and not _LAYOUT.search(name) else "other"


def sums(result: Result) -> dict[str, float]:
    """Returns the µs of a call by whose kernels take them, and of the gaps between kernels."""
    spent: Counter[str] = Counter()
    for kernel in result["kernels"]:
        spent[kernel["kind"]] += kernel["us"]
    return {
        "products_us": spent["product"],
        "others_us": spent["other"],
        "own_us": spent["own"],
        "gaps_us": result["us"] - spent.total(),
    }


def table(results: Sequence[Result]) -> str:
    """Returns Markdown: a row for each problem below the roofline, the worst first; then what could not be measured."""
    measured = [result for result in results if "us" in result]
    slow = sorted((r for r in measured if r["share"] < BELOW), key=lambda r: float(r["share"]))
    lines = [
        "| problem | of the roofline | call µs | roofline µs | library's products and convolutions µs |"
        " other library kernels µs | own kernels µs | their share of the bandwidth | cause |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
        *map(_row, slow),
        f"\n{len(slow)} of {len(measured)} problems are below {BELOW:.0%} of the roofline.",
    ]
    lines += [f"\n{result['problem']}: {result['error']}" for result in results if "error" in result]
    return "\n".join(lines)


def _row(result: Result) -> str:
    us, parts = result["us"], [result[name] for name in ("products_us", "others_us", "own_us")]
    moving = [kernel for kernel in _own(result) if not kernel["product"]]
    cells = [
        result["problem"],
        f"{result['share']:.0%}",
        f"{us:,.0f}",
        f"{result['roofline_us']:,.0f}",
        *(f"{part:,.0f} ({part / us:.0%})" if part else "–" for part in parts),
        f"{_bandwidth(moving, result):.0%}" if moving else "–",
        cause(result),
    ]
    return f"| {' | '.join(cells)} |"


def cause(result: Result) -> str:
    """Says what takes the time of a call: each part of it that is no less than ``PART``, the longest first."""
    own, us = _own(result), result["us"]
    multiplying = [kernel for kernel in own if kernel["product"]]
    fast = [kernel for kernel in own if not kernel["product"] and kernel["share"] >= FAST]
    parts = [(each["us"], _slow(each, result)) for each in own if each not in (*multiplying, *fast)]
    parts.append(
        (_sum(multiplying, "us"), f"own products ({', '.join(each['name'] for each in multiplying)})")
    )
    parts.append((result["products_us"], f"the library's {_products(result)}"))
    if not (multiplying and result["products_us"]):  # whose operations they are is known
        needs = f"%s, whose operations need {result['computing_us']:,.0f} µs at the roofline's rate"
        parts[-2:] = [(part, needs % text) for part, text in parts[-2:]]
    parts.append((result["others_us"], f"other kernels of the library, most in {_longest_other(result)}"))
    parts.append((result["gaps_us"], "gaps between the launches of kernels"))
    rest = (_sum(fast, "us"), _moving(fast, result))
    library = result["products_us"] + result["others_us"] >= PART * us
    if library or _sum(fast, "bytes") > MORE * result["bytes"]:
        parts.append((rest[0], f"{rest[1]} ({_why_more(fast, result)})"))
    named = sorted((part for part in parts if part[0] >= PART * us), reverse=True)
    return "; ".join(
        f"{part / us:.0%} of the time ({part:,.0f} µs) in {text}"
        for part, text in named or [max(rest, *parts)]
    )


def _slow(kernel: Result, result: Result) -> str:
    again = ""
    if kernel["again"] > (MORE - 1) * kernel["bytes"]:
        all_reads = kernel | {"bytes": kernel["bytes"] + kernel["again"]}
        again = f", or {_bandwidth([all_reads], result):.0%} with what it reads more than once"
    moves = f"{_arguments(kernel)}, {_size(kernel['bytes'])}"
    return f"the kernel {kernel['name']} ({moves}) at {kernel['share']:.0%} of the bandwidth{again}"


def _products(result: Result) -> str:
    products, convolutions = result["flops"] > result["convolution_flops"], result["convolution_flops"]
    return " and ".join(["products"] * products + ["convolutions"] * bool(convolutions)) or "products"


def _longest_other(result: Result) -> str:
    others = [kernel for kernel in result["kernels"] if kernel["kind"] == "other"]
    longest = str(max(others, key=lambda kernel: float(kernel["us"]))["name"]) if others else ""
    bare = longest.removeprefix("void ").replace("(anonymous namespace)::", "")
    # What an elementwise kernel computes stands in its arguments.
    inner = re.search(r"(\w+_kernel_cuda|\w+Functor)", bare.partition("<")[2])
    return re.sub(r"[<(].*", "", bare) + (f" of {inner[0]}" if inner else "")


def _moving(fast: Sequence[Result], result: Result) -> str:
    moved, share = _sum(fast, "bytes"), _bandwidth(fast, result)
    times = f"{moved / result['bytes']:.2f} times the bytes of inputs, weights and outputs"
    return f"own kernels that move {_size(moved)}, {times}, at {share:.0%} of the bandwidth"


def _why_more(fast: Sequence[Result], result: Result) -> str:
    large = (n for k in fast for n, size in k["reads"].items() if size >= (MORE - 1) * result["bytes"])
    again = [f"{name} is read by {count} kernels" for name, count in Counter(large).items() if count > 1]
    return ", ".join(again) or "intermediates"


def _own(result: Result) -> list[Result]:
    return [kernel for kernel in result["kernels"] if kernel["kind"] == "own"]


def _sum(kernels: Sequence[Result], figure: str) -> float:
    return float(sum(kernel[figure] for kernel in kernels))


def _bandwidth(kernels: Sequence[Result], result: Result) -> float:
    """Returns the share of the bandwidth at which kernels move their arguments."""
    took = _sum(kernels, "us")
    return _sum(kernels, "bytes") / took / float(result["bytes_per_us"]) if took else 0.0


def _arguments(kernel: Result) -> str:
    """Returns the arguments with most of a kernel's bytes: ``product, x → out``."""

    def named(sizes: dict[str, int]) -> Iterator[str]:
        least = (MORE - 1) * max([*kernel["reads"].values(), *kernel["writes"].values()])
        return (name for name in sorted(sizes, key=lambda name: -sizes[name]) if sizes[name] >= least)

    return " → ".join(", ".join(named(kernel[side])) or "…" for side in ("reads", "writes"))


def _size(count: float) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
