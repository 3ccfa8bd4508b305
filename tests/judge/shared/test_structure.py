"""Outputs as leaves and a description of how they nest, in which exact types differ."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch

from kernelllm_judge.shared.leaves import flatten

X = torch.ones(2, 2)
Pair = namedtuple("Pair", "values indices")


@pytest.mark.parametrize(
    ("value", "structure"),
    [
        (X, "*"),
        (None, None),
        ((X, [X, None]), ["tuple", "*", ["list", "*", None]]),
        ({"a": X, "b": (X,)}, ["dict", "a", "*", "b", ["tuple", "*"]]),
        (X.max(0), ["torch.return_types.max", "*", "*"]),
        (X.sort(), ["torch.return_types.sort", "*", "*"]),
        (X.shape, ["torch.Size", "*", "*"]),
        (Pair(X, X), [f"{__name__}.Pair", "*", "*"]),
        (OrderedDict(a=X), ["collections.OrderedDict", "a", "*"]),
    ],
)
def test_the_structure_says_the_exact_type(value: Any, structure: Any) -> None:
    assert flatten(value)[0] == structure
    assert json.loads(json.dumps(structure)) == structure


def test_leaves_are_in_order() -> None:
    largest = X.max(0)
    assert [id(leaf) for leaf in flatten((X, largest))[1]] == [id(X), id(largest.values), id(largest.indices)]
