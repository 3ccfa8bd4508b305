"""Makes Triton's interpreter faster: it spends most of its time on the types of values, not on the values.

Results stay the same. A block type is made once for an element type and a shape, and what follows from a type is
computed once. Operands that need no conversion or broadcast are recognised by their types, without any of Triton's
other checks; everything else goes Triton's own way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle, interpreter_builder, interpreter_semantic

from kernelllm_judge.worker import batching

INTEGERS = frozenset({*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES} - {"int1"})
"""Names of the integer types."""
EXACT = (tl.float32, tl.float64)
"""Floating types in which every operation is computed; others are widened for some."""

_SHAPE, _OTHERS = "_kernelllm_shape", "_kernelllm_others"
"""Attributes of types: what a tensor takes from its type, and block types of the same shape by their element type."""


def speed_up_language() -> None:
    """Patches this process's interpreter, after ``batching`` and before the other patches.

    Half of the time goes into overflow checks after every integer operation, and much of the rest into the types of values.
    """
    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)
    _make_handles_quickly()
    _share_block_types()
    _share_shapes()
    _compare_types_by_identity()
    _skip_conversions()
    _skip_broadcasts()
    _find_numpy_types()
    _call_builtins_directly()


def _make_handles_quickly() -> None:
    check = TensorHandle.__post_init__

    def init(self: Any, data: Any, dtype: Any, attr: dict[str, Any] | None = None) -> None:
        self.data, self.dtype, self.attr = data, dtype, {} if attr is None else attr
        bits = dtype.__dict__.get("primitive_bitwidth")
        if bits is None or data.itemsize > max(bits // 8, 1):
            check(self)

    TensorHandle.__init__ = init


def _share_block_types() -> None:
    block_type = tl.core.block_type
    made: dict[Any, Any] = {}
    init = block_type.__init__

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        sizes = _sizes(args[1]) if cls is block_type and len(args) == 2 else None
        if sizes is None:
            return object.__new__(cls)
        # A type keeps its element type alive, so no other one gets the same id.
        key = id(args[0]), sizes
        found = made.get(key)
        if found is None:
            found = object.__new__(cls)
            init(found, *args)  # raises an error if this is no valid shape
            made[key] = found
        return found

    def init_once(self: Any, *args: Any, **kwargs: Any) -> None:
        if "numel" not in self.__dict__:
            init(self, *args, **kwargs)

    def with_element_type(self: Any, element: Any) -> Any:
        others = self.__dict__.setdefault(_OTHERS, {})
        found = others.get(id(element))
        if found is None:
            found = others[id(element)] = block_type(element, self.shape)
        return found

    block_type.__new__, block_type.__init__ = new, init_once
    block_type.with_element_ty = with_element_type


def _sizes(shape: Any) -> tuple[int, ...] | None:
    """Returns a shape as plain integers; None if something else is among them."""
    values = shape.values if type(shape) is tl.tuple else shape
    sizes = tuple([size.value if type(size) is tl.constexpr else size for size in values])
    return sizes if {*map(type, sizes)} == {int} else None


def _share_shapes() -> None:
    tensor = tl.core.tensor
    init = tensor.__init__

    def init_from_type(self: Any, handle: Any, type: Any) -> None:
        known = type.__dict__.get(_SHAPE)
        if known is None:
            init(self, handle, type)
            setattr(type, _SHAPE, (self.shape, self.numel, self.dtype))
        else:
            self.handle, self.type = handle, type
            self.shape, self.numel, self.dtype = known

    tensor.__init__ = init_from_type


def _compare_types_by_identity() -> None:
    core = tl.core
    dtype, block_type, constexpr, tensor = core.dtype, core.block_type, core.constexpr, core.tensor
    equal, equal_blocks, unwrap = dtype.__eq__, block_type.__eq__, core._unwrap_if_constexpr

    def same(self: Any, other: Any) -> bool:
        if self is other:
            return True
        if type(self) is dtype and type(other) is dtype:
            return bool(self.name == other.name)
        return bool(equal(self, other))

    def unwrap_plain(value: Any) -> Any:
        kind = type(value)
        if kind is constexpr:
            return value.value
        return value if kind is tensor or kind is int or kind is str else unwrap(value)

    dtype.__eq__ = same
    block_type.__eq__ = lambda self, other: self is other or equal_blocks(self, other)
    core._unwrap_if_constexpr = tl._unwrap_if_constexpr = unwrap_plain


def _skip_conversions() -> None:
    tensor, convert = tl.core.tensor, TritonSemantic.binary_op_type_checking_impl

    def constant(semantic: Any, number: Any, dtype: Any) -> Any:
        """Returns a number as a scalar of ``dtype``; None if the two may need another type."""
        kind = type(number)
        exact = (kind is float or kind is int) and dtype in EXACT
        if exact or (
            kind is int
            and dtype.name in INTEGERS
            and dtype.get_int_min_value() <= number <= dtype.get_int_max_value()
        ):
            return semantic.scalar_constant(number, dtype=dtype)
        return None

    def convert_others(
        semantic: Any,
        left: Any,
        right: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(left) is tensor and type(right) is tensor:
            dtype = left.dtype
            if dtype is right.dtype and (dtype.name in INTEGERS or dtype in EXACT):
                return semantic.broadcast_impl_value(left, right)
        elif not arithmetic_check:  # numbers have types of their own then
            pass
        elif type(left) is tensor:
            number = constant(semantic, right, left.dtype)
            if number is not None:
                return semantic.broadcast_impl_value(left, number)
        elif type(right) is tensor:
            number = constant(semantic, left, right.dtype)
            if number is not None:
                return semantic.broadcast_impl_value(number, right)
        return convert(semantic, left, right, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    TritonSemantic.binary_op_type_checking_impl = convert_others


def _skip_broadcasts() -> None:
    broadcast = TritonSemantic.broadcast_impl_value
    builder, block_type, tensor = interpreter_builder, tl.core.block_type, tl.core.tensor

    def broadcast_others(semantic: Any, left: Any, right: Any) -> Any:
        a, b = left.type, right.type
        if a is b:
            return left, right
        if not a.is_block():
            return (splat(left, b), right) if b.is_block() else (left, right)
        if not b.is_block():
            return left, splat(right, a)
        one, other = a.shape.values, b.shape.values
        if one == other:
            return left, right
        pairs = [*zip(one, other, strict=False)]
        if len(one) != len(other) or any(x != y and x != 1 and y != 1 for x, y in pairs):
            return broadcast(semantic, left, right)
        shape = [y if x == 1 else x for x, y in pairs]
        return stretch(left, shape), stretch(right, shape)

    def splat(scalar: Any, like: Any) -> Any:
        block, handle = like.with_element_ty(scalar.dtype), scalar.handle
        return tensor(TensorHandle(batching.splat(handle, block.shape.values), handle.dtype.scalar), block)

    def stretch(value: Any, shape: list[int]) -> Any:
        if value.type.shape.values == shape:
            return value
        return tensor(builder.create_broadcast(value.handle, shape), block_type(value.dtype, shape))

    TritonSemantic.broadcast_impl_value = broadcast_others


def _find_numpy_types() -> None:
    find = interpreter._get_np_dtype
    found: dict[int, tuple[Any, Any]] = {}

    def find_once(dtype: Any) -> Any:
        known = found.get(id(dtype))
        if known is None or known[0] is not dtype:
            known = found[id(dtype)] = (dtype, find(dtype))
        return known[1]

    interpreter._get_np_dtype = find_once


def _call_builtins_directly() -> None:
    guard = tl.core.builtin(lambda: None).__code__

    def patch(holder: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        # `tl.core.builtin` wraps functions to refuse calls without `_semantic`, which is always given here.
        function = member.__wrapped__ if getattr(member, "__code__", None) is guard else member

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter_semantic
            return function(*args, **kwargs)

        scope.set_attr(holder, name, call)

    interpreter._patch_attr = patch
