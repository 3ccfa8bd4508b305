"""Writes TorchInductor's template for a transposed convolution with strides or dilation.

Divided by the stride, the positions of outputs leave a remainder. Those that leave the same one read the same taps of the kernel, so
that they are a plain convolution. A program computes outputs of one remainder in each dimension, and programs for the others run next
to it. In the last dimension it computes all remainders, if they are few, and stores outputs that lie side by side.

Where there are many channels, ``tl.dot`` multiplies blocks of them with the weights. Where there are few, most of such a block would
be empty: one channel is read at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_TOGETHER = 4
"""Of the last dimension's remainders, each of which needs registers."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a transposed convolution."""

    name: str
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def common(self) -> int:
        """Outputs whose position in the padded result it does not divide have no taps."""
        return math.gcd(self.stride, self.dilation)

    @property
    def step(self) -> int:
        """How far apart the taps of an output are."""
        return self.stride // self.common

    @property
    def together(self) -> bool:
        """Whether a program computes all remainders, if this is the last dimension."""
        return self.dilation == 1 and self.stride in (1, 2, _MOST_TOGETHER)

    def taps(self, output: int) -> dict[int, int]:
        """Returns the taps of an output, each with the input that it reads, which need not be there."""
        reached = {tap: output + self.padding - tap * self.dilation for tap in range(self.kernel)}
        return {tap: place // self.stride for tap, place in reached.items() if place % self.stride == 0}

    def leaves_out(self, inputs: int, outputs: int) -> bool:
        """Whether an output has taps, but none whose input is there."""
        border = self.padding + self.kernel * self.dilation + self.stride
        near = [n for n in range(outputs) if n < border or n >= outputs - border]
        reads = (self.taps(output).values() for output in near)
        return any(found and not any(0 <= n < inputs for n in found) for found in reads)


@dataclass(frozen=True)
class Form:
    """What the text of the template depends on."""

    axes: tuple[Axis, ...]
    dot: bool
    """Blocks of channels are multiplied; else one channel is read at a time."""
    grouped: bool
    """There are several groups."""
    leaves_out: bool
    """Outputs may have taps of which none reads an input: they are 0, whatever the weights are."""

    @property
    def totals(self) -> Sequence[str]:
        """The names of the sums: one for each remainder in the last dimension that a program computes."""
        last = self.axes[-1]
        several = last.together and last.stride > 1
        return [f"acc_{remainder}" for remainder in range(last.stride)] if several else ["acc"]

    @property
    def looped(self) -> Sequence[Axis]:
        """The dimensions in which a program computes one remainder, and whose taps it goes through."""
        return self.axes[:-1] if self.axes[-1].together else self.axes


def kernel_text(form: Form) -> str:
    """Returns the text of the template."""
    lines = [
        *_sizes(form),
        *_position(form),
        *(line for axis in form.looped for line in _first_tap(axis)),
        *_loop(form),
        *_store(form),
    ]
    return "\n".join(['{{def_kernel("X", "W")}}', *(f"    {line}" for line in lines), ""])


def _sizes(form: Form) -> list[str]:
    lines = ['BATCH = {{size("X", 0)}}', 'IN_C = {{size("X", 1)}}', "OUT_C = {{size(None, 1)}}"]
    for n, axis in enumerate(form.axes, 2):
        lines += [
            f'IN_{axis.name} = {{{{size("X", {n})}}}}',
            f"OUT_{axis.name} = {{{{size(None, {n})}}}}",
            f"ROWS_{axis.name} = (OUT_{axis.name} + STRIDE_{axis.name} - 1) // STRIDE_{axis.name}",
        ]
    for tensor, names in (("X", ["n", "c", *_names(form)]), ("W", ["g", "t", "c_in", "c_out"])):
        lines += [
            f'stride_{tensor.lower()}{name} = {{{{stride("{tensor}", {n})}}}}' for n, name in enumerate(names)
        ]
    divided = " // GROUPS" * form.grouped
    return [
        *lines,
        f"GROUP_IN_C = IN_C{divided}",
        f"GROUP_OUT_C = OUT_C{divided}",
        "group = " + ("tl.program_id(2).to(INDEX_DTYPE)" if form.grouped else "0"),
        "idx_y_c = tl.program_id(1).to(INDEX_DTYPE) * BLOCK_N + tl.arange(0, BLOCK_N)",
        "mask_c = idx_y_c < GROUP_OUT_C",
    ]


def _names(form: Form) -> list[str]:
    return [axis.name.lower() for axis in form.axes]


def _position(form: Form) -> list[str]:
    """Writes which outputs a program computes: a remainder in some dimensions, and a block of positions divided by the strides."""
    lines = ["block = tl.program_id(0).to(INDEX_DTYPE)"]
    for axis in reversed(form.looped):
        if axis.stride > 1:
            lines += [
                f"remainder_{axis.name.lower()} = block % STRIDE_{axis.name}",
                f"block = block // STRIDE_{axis.name}",
            ]
    return [*lines, *_rows(form, "BLOCK_M", {})]


def _rows(form: Form, count: str, times: dict[str, str]) -> list[str]:
    """Writes the rows in each dimension, of which there are so many ``times`` as many, and the sample."""
    lines = [f"idx_n = block * {count} + tl.arange(0, {count})"]
    for axis in reversed(form.axes):
        rows = f"ROWS_{axis.name}"
        rows = f"({rows} * {times[axis.name]})" if axis.name in times else rows
        lines += [f"row_{axis.name.lower()} = idx_n % {rows}", f"idx_n = idx_n // {rows}"]
    return lines


def _first_tap(axis: Axis) -> list[str]:
    """Writes the first tap of a program in a dimension, how many it has, and which input the first one reads."""
    name, step = axis.name.lower(), axis.step
    padded = f" + {axis.padding}" * (axis.padding > 0)
    if axis.stride == 1:
        return [f"first_{name} = 0", f"taps_{name} = KERNEL_{axis.name}", f"from_{name} = row_{name}{padded}"]
    # The tap t with t * dilation = padded position, by the stride; divided by what all three have in common.
    inverse = pow(axis.dilation // axis.common, -1, step) if step > 1 else 0
    divided = f" // {axis.common}" * (axis.common > 1)
    lines = [
        f"shifted_{name} = remainder_{name}{padded}",
        f"first_{name} = shifted_{name}{divided}" + f" * {inverse}" * (inverse != 1) + f" % {step}",
        f"taps_{name} = (KERNEL_{axis.name} - first_{name} + {step - 1}) // {step}",
    ]
    if axis.common > 1:
        lines.append(f"taps_{name} = tl.where(shifted_{name} % {axis.common} == 0, taps_{name}, 0)")
    reached = f"first_{name}" + f" * {axis.dilation}" * (axis.dilation > 1)
    return [*lines, f"from_{name} = row_{name} + (shifted_{name} - {reached}) // STRIDE_{axis.name}"]


def _loop(form: Form) -> list[str]:
    """Writes the loop over taps, and over channels, or blocks of them, at each."""
    lines = [f"{total} = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)" for total in form.totals]
    if form.leaves_out:
        lines += [f"{_reads(total)} = tl.zeros((BLOCK_M,), dtype=tl.int1)" for total in form.totals]
    blocks = "(GROUP_IN_C + BLOCK_K - 1) // BLOCK_K" if form.dot else "GROUP_IN_C"
    channel = "(step % CHANNEL_STEPS).to(INDEX_DTYPE)" + " * BLOCK_K + tl.arange(0, BLOCK_K)" * form.dot
    taps = [f"taps_{axis.name.lower()}" for axis in form.looped]
    body = [f"idx_c = {channel}", "tap = step // CHANNEL_STEPS"]
    for axis in reversed(form.looped[1:]):
        name = axis.name.lower()
        body += [f"at_{name} = tap % taps_{name}", f"tap = tap // taps_{name}"]
    body += [f"at_{axis.name.lower()} = tap" for axis in form.looped[:1]]
    body += [*_pointers(form), *_products(form)]
    return [
        *lines,
        "x_base = X + idx_n * stride_xn + group * GROUP_IN_C * stride_xc",
        "w_base = W + group * stride_wg + idx_y_c * stride_wc_out",
        f"CHANNEL_STEPS = {blocks}",
        f"for step in range({' * '.join([*taps, 'CHANNEL_STEPS'])}):",
        *(f"    {line}" for line in body),
    ]


def _pointers(form: Form) -> list[str]:
    """Writes where a step reads: inputs, at the last dimension's first one if that is not looped over, and weights."""
    lines, inside, offsets, number = [], ["(idx_n < BATCH)"], [], ""
    for axis in form.looped:
        name, apart = axis.name.lower(), axis.dilation // axis.common
        place = f"first_{name} + at_{name}" + f" * {axis.step}" * (axis.step > 1)
        number = f"({number}) * KERNEL_{axis.name} + {place}" if number else place
        lines.append(f"idx_x_{name} = from_{name} - at_{name}" + f" * {apart}" * (apart > 1))
        inside += [f"(idx_x_{name} >= 0)", f"(idx_x_{name} < IN_{axis.name})"]
        offsets.append(f"idx_x_{name} * stride_x{name}")
    for axis in form.axes[len(form.looped) :]:
        number = f"({number}) * KERNEL_{axis.name}"
    lines += [
        f"inside = {' & '.join(inside)}",
        f"x_ptrs = x_base + {' + '.join(offsets)}",
        f"w_ptrs = w_base + ({number}) * stride_wt",
    ]
    if not form.dot:
        return [*lines, "x_ptrs = x_ptrs + idx_c * stride_xc", "w_ptrs = w_ptrs + idx_c * stride_wc_in"]
    return [
        *lines,
        "x_ptrs = x_ptrs[:, None] + (idx_c * stride_xc)[None, :]",
        "w_ptrs = w_ptrs[None, :] + (idx_c * stride_wc_in)[:, None]",
        "mask_k = idx_c < GROUP_IN_C",
        "mask_w = mask_k[:, None] & mask_c[None, :]",
    ]


def _products(form: Form) -> list[str]:
    """Writes the products of a step: each input of the last dimension once, with every tap that reads it."""
    last = form.axes[-1]
    if not last.together:
        return [*_read(form, "x_ptrs", "inside"), *_added(form, "acc", "w_ptrs", "inside")]
    name = last.name.lower()
    by_input: dict[int, list[tuple[int, int]]] = {}
    for remainder in range(last.stride):
        for tap, place in last.taps(remainder).items():
            by_input.setdefault(place, []).append((remainder, tap))
    lines = []
    for place, taps in sorted(by_input.items()):
        idx = f"row_{name}" + (f" + {place}" if place > 0 else f" - {-place}" if place else "")
        below = f" & (idx_x_{name} >= 0)" * (place < 0)
        lines += [
            f"idx_x_{name} = {idx}",
            f"there = inside{below} & (idx_x_{name} < IN_{last.name})",
            *_read(form, f"x_ptrs + (idx_x_{name} * stride_x{name}){'[:, None]' * form.dot}", "there"),
        ]
        for remainder, tap in taps:
            where = "w_ptrs" + (f" + {tap} * stride_wt" if tap > 1 else " + stride_wt" * tap)
            lines += _added(form, form.totals[remainder], where, "there")
    return lines


def _read(form: Form, where: str, inside: str) -> list[str]:
    if form.dot:
        mask = f"{inside}[:, None] & mask_k[None, :]"
        return [f"matrix_x = tl.load({where}, mask={mask}, other=0.0)"]
    return [f"value_x = tl.load({where}, mask={inside}, other=0.0).to(tl.float32)"]


def _added(form: Form, total: str, where: str, inside: str) -> list[str]:
    lines = [f"{_reads(total)} = {_reads(total)} | {inside}"] * form.leaves_out
    if form.dot:
        weights = f"tl.load({where}, mask=mask_w, other=0.0)"
        return [*lines, f"{total} += tl.dot(matrix_x, {weights}, allow_tf32=ALLOW_TF32)"]
    weights = f"tl.load({where}, mask=mask_c, other=0.0).to(tl.float32)"
    return [*lines, f"{total} += value_x[:, None] * {weights}[None, :]"]


def _reads(total: str) -> str:
    """Returns the name for whether the outputs of a sum read any input."""
    return total.replace("acc", "reads")


def _store(form: Form) -> list[str]:
    """Writes where the outputs go. Remainders of the last dimension become positions again, side by side."""
    lines, totals, last = [], form.totals, form.axes[-1]
    if form.leaves_out:
        lines += [f"{total} = tl.where({_reads(total)}[:, None], {total}, 0.0)" for total in totals]
    if len(totals) == _MOST_TOGETHER:
        lines += ["even = tl.join(acc_0, acc_2)", "odd = tl.join(acc_1, acc_3)"]
        joined = f"tl.reshape(tl.join(even, odd), (BLOCK_M, BLOCK_N, {_MOST_TOGETHER}))"
    else:
        joined = "tl.join(acc_0, acc_1)"
    if len(totals) > 1:
        lines += [
            f"acc = tl.reshape(tl.permute({joined}, (0, 2, 1)), (OUT_M, BLOCK_N))",
            *_rows(form, "OUT_M", {last.name: f"STRIDE_{last.name}"}),
        ]
    for axis in form.axes:
        name = axis.name.lower()
        split = axis in form.looped and axis.stride > 1
        place = f"(row_{name} * STRIDE_{axis.name} + remainder_{name})" if split else f"row_{name}"
        lines.append(f"idx_{name} = {place}[:, None]")
    inside = " & ".join(f"(idx_{axis.name.lower()} < OUT_{axis.name})" for axis in form.axes)
    indices = ", ".join(f'"idx_{name}"' for name in ["n", "c", *_names(form)])
    return [
        *lines,
        "idx_n = idx_n[:, None]",
        "idx_c = (group * GROUP_OUT_C + idx_y_c)[None, :]",
        f"mask = (idx_n < BATCH) & {inside} & mask_c[None, :]",
        f'{{{{store_output(({indices}), "acc", "mask", val_shape=("OUT_M", "BLOCK_N"))}}}}',
    ]
