"""An answer whose names are not the module's is accepted only with a word about it."""

from projects import ANSWER, GOOD

from kernelllm_judge.render.modelnew.mapped_names import mapped_names

SAME = ANSWER
OTHER = ANSWER.replace("self.weight", "self.gamma")


def test_names_that_differ_are_named_on_both_sides():
    said = mapped_names(OTHER, GOOD)
    assert said == "its own gamma stand for the module's weight, by shape and first values"
    assert mapped_names(SAME, GOOD) == ""
    inlined = ANSWER.replace("self.weight, out", "self.weight * self.one, out")
    assert mapped_names(inlined, GOOD) == "", "a constant that was written out stands for nothing"
