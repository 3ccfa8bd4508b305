"""Compares ``judge.reference.fused`` with PyTorch's operations: in Triton's interpreter, or on a GPU.

TRITON_INTERPRET=1 python fused_checks.py cpu
"""

from __future__ import annotations

import sys
from unittest import mock

import torch

from kernelllm_judge.policy import Policy
from kernelllm_judge.truth import agreement, fingerprint, fused, numerics, rows, slices

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers of many magnitudes, as float64."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(shape, dtype=torch.float64, generator=generator)
    return (
        exact * torch.randn(shape[0], *[1] * (len(shape) - 1), dtype=torch.float64, generator=generator).exp()
    )


def check_within(device: str) -> None:
    """What agrees, and what does not for one element at the end, a NaN, or an infinity."""
    for dtype in FLOATS:
        original = numbers(3, 3001).to(dtype)
        eps = torch.finfo(dtype).eps
        for change in (1.0, 1 + 4 * eps, torch.nan, torch.inf):
            got = original.clone()
            got[-1, -1] *= change
            for pair in ((got, original), (original, got), (got, got)):
                expected = agreement._within(*pair, share=eps)
                assert fused.within(*(x.to(device) for x in pair), share=eps).item() == expected.item()
        assert fused.within(original.to(device), original.to(device), eps).item()


def check_close(device: str) -> None:
    """Relative to the largest element; NaN and infinities where both have them."""
    for dtype in (torch.float32, torch.float64):
        expected = numbers(3, 3001).to(dtype)
        expected[0, 0], expected[0, 1] = torch.nan, torch.inf
        assert fused.largest(expected.to(device)).item() == rows.largest(expected).item()
        for change, at in (
            (0.0, (2, 3000)),
            (1e-3, (2, 3000)),
            (1e3, (1, 7)),
            (torch.nan, (1, 7)),
            (1.0, (0, 1)),
        ):
            value = expected.clone()
            value[at] = value[at] + change if at != (0, 1) else -torch.inf
            right = slices._close(value, expected, 1e-5)
            assert fused.close(value.to(device), expected.to(device), 1e-5).item() == right.item()


def check_fingerprints(device: str) -> None:
    """The same numbers as PyTorch's integers give, over several chunks."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.empty(2 * fused.BLOCK, dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        integers = torch.randint(0, 100, (5 * fused.BLOCK + 17,), generator=generator).to(dtype)
        expected = [
            (part.to(torch.int64) * factors[: len(part)]).sum() for part in integers.split(len(factors))
        ]
        found = fused.products(integers.to(device), factors.to(device), len(factors))
        assert found.tolist() == [int(each) for each in expected]


def check_bounds(device: str) -> None:
    """Scales and errors of rows, and what is compared with them."""
    for dtype in FLOATS:
        for width in (1, 33, 1100):
            exact = numbers(12, width)
            exact[3] = 3e4 * (1 - 5e-4 * numbers(1, width, seed=1).tanh().abs())  # alike, so they count for 1
            exact[4] = 0.0
            original = exact.to(dtype)
            least = rows.least_unit(dtype)
            scale, errs, together = fused.row_bounds(original.to(device), exact.to(device), least)
            torch.testing.assert_close(scale.cpu(), rows.row_scale(exact))
            unit = rows.unit_of(exact, rows.row_scale(exact), dtype, True)
            off = rows.distance(original.double(), exact) / unit
            torch.testing.assert_close(errs.cpu(), off.amax(1, keepdim=True))
            torch.testing.assert_close(together.cpu(), rows.rms(off, 1))
            check_errors(device, original, exact, least)


def check_errors(device: str, original: torch.Tensor, exact: torch.Tensor, least: float) -> None:
    """How many elements are wrong, and which is the worst."""
    scale = rows.row_scale(exact)
    got = original.clone()
    got[5, -1] += 1 + got[5, -1].abs()
    got[7, 0] += 2 + 3 * got[7, 0].abs()
    sensitivity = torch.rand(exact.shape, generator=torch.Generator().manual_seed(1)) * 1e-6
    base = torch.linspace(1e-6, 1e-2, len(exact), dtype=torch.float64)[:, None].contiguous()
    for some in (None, sensitivity):
        error = (got.double() - exact).abs() / rows.unit_of(exact, scale, got.dtype, True)
        allowed = base.expand_as(exact) if some is None else torch.maximum(base, some)
        ratio, column = (error / allowed).max(1, keepdim=True)
        place = column + torch.arange(len(exact))[:, None] * exact.shape[1]
        there = place, error.gather(1, column), allowed.gather(1, column)
        expected = torch.cat([(error > allowed).sum(1, keepdim=True), ratio, *there, rows.rms(error, 1)], 1)
        tensors = (t if t is None else t.to(device) for t in (got, exact, scale, base, some))
        torch.testing.assert_close(fused.errors(*tensors, least).cpu(), expected.t())
        assert int(expected[:, 0].sum()) > 0


def check_columns(device: str) -> None:
    """Root mean squares of columns, over several parts of the rows."""
    for shape in ((40, 3), (1040, 33)):
        exact = numbers(*shape)
        value = exact.float()
        off = fused.column_rms(value.to(device), exact.to(device), 3.0).cpu()
        torch.testing.assert_close(off, rows.group_rms(exact, value, 0, 3.0, Policy()))


def check_comparisons(device: str) -> None:
    """Bounds and comparisons as a whole: the same with and without."""
    for dtype in FLOATS:
        exact = numbers(260, 33)
        original = exact.to(dtype)
        right = (exact * (1 + torch.finfo(dtype).eps / 4)).to(dtype)
        wrong = right.clone()
        wrong[259, 32] += 1
        shifted = (exact + 3 * torch.finfo(dtype).eps * exact.abs().amax(1, keepdim=True)).to(dtype)
        for got in (right, wrong, shifted):
            found = []
            for where, fitting in (("cpu", lambda *_, **__: False), (device, _fits_anywhere)):
                with mock.patch.object(fused, "fits", fitting):
                    leaf, truth, value = (x.to(where) for x in (original, exact, got))
                    expected = numerics.expect(None, [leaf], [truth], [], Policy(), elements=exact.numel())
                    found.append(numerics.compare(value, expected, 0, Policy(), None))
            before, after = found
            assert (after.passed, after.detail) == (before.passed, before.detail)
            torch.testing.assert_close((after.measured, after.allowed), (before.measured, before.allowed))


def _fits_anywhere(*tensors: torch.Tensor, dtypes: tuple[torch.dtype, ...]) -> bool:
    return all(t.numel() and t.is_contiguous() and t.dtype in dtypes for t in tensors)


CHECKS = (check_within, check_close, check_fingerprints, check_bounds, check_columns, check_comparisons)

if __name__ == "__main__":
    for check in CHECKS:
        check(sys.argv[1])
    assert fingerprint.CHUNK % fused.BLOCK == 0
