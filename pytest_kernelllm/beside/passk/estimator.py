"""The unbiased estimator behind pass@k and fast_p."""

from __future__ import annotations

from math import comb


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Returns the chance that at least one of ``k`` samples succeeds, estimated from ``n`` samples of which ``c`` did.

    It is 1 - C(n-c, k) / C(n, k), the estimator of Chen et al. (2021): the share of all choices of k among the n
    samples that hold a success. Worked out in whole numbers and rounded once, so it neither overflows nor cancels.
    Where ``k`` exceeds ``n`` it is None, because there is no unbiased estimate then.

    Raises:
        ValueError: the counts make no sense.
    """
    if not (0 <= c <= n and k >= 1):
        raise ValueError(f"{c} successes in {n} samples, {k} drawn: there is no such count")
    if k > n:
        return None
    choices = comb(n, k)
    return (choices - comb(n - c, k)) / choices


def mean(values: list[float | None]) -> float | None:
    """Returns the mean; None where a value is missing or there are none: a mean over fewer targets is another figure."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
