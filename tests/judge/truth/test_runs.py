"""Runs of the original are told apart by how many leaves they gave."""

import torch

from kernelllm_judge.truth.runs import Runs

LEAF = torch.zeros(1)
ONE, TWO = [LEAF], [LEAF, LEAF]


def test_runs_that_gave_another_number_of_leaves_say_nothing():
    runs = Runs(TWO, [ONE, TWO], [(ONE, TWO), (TWO, TWO)], [("other", ONE), ("same", TWO)]).giving(2)
    assert runs == Runs(TWO, [TWO], [(TWO, TWO)], [("same", TWO)])


def test_a_group_of_leaves_has_its_part_of_each_run():
    runs = Runs(TWO, [TWO], [(TWO, TWO)] * 3, [("same", TWO)]).leaves(slice(1), 2)
    assert runs == Runs(ONE, [ONE], [(ONE, ONE)] * 2, [("same", ONE)])
    assert Runs(None, [], [], []).leaves(slice(1), 0).exact is None
