"""Generators that answer nothing, half or not at all: nobody takes such a run for a good one."""

import pytest
from projects import GOOD, LAYERS, lay_out

CONFTEST = """
from pytest_kernelllm.models.generator import KernelLLMGenerator
from pytest_kernelllm.models.protocol import Answer, LanguageModel, Sampling

class Model(LanguageModel):
    name, revision = "model", "1"
    def identity(self): return "model"
    def answers(self, asks, sampling):
        for number, ask in enumerate(asks):
            for index in ask.indices:
                {answer}

class Own(KernelLLMGenerator):
    def _prompt(self, request, attempts=()): return "prompt", ""  # a real one imports torch

def pytest_kernelllm_generators(config):
    return [Own("own", Model(), Sampling(max_new_tokens=77), on_gpu=False)]
"""
OPTIONS = ("--kernelllm", "--kernelllm-device=cpu", "--kernelllm-samples=2", "--kernelllm-generator=files")
OPTIONS = (*OPTIONS, "--kernelllm-set=candidates_dir=candidates", "-rxsf", "-p", "no:cacheprovider")


@pytest.fixture
def answering(pytester):
    """A project with two targets, whose second generator's model answers as a statement says."""

    def make(answer):
        lay_out(pytester.path, {})
        two = LAYERS + LAYERS.split("\n\n\n")[-1].replace("class Scale", "class Again")
        (pytester.path / "layers.py").write_text(two)
        pytester.makeconftest(CONFTEST.format(answer=answer))
        return lambda *more: pytester.runpytest_inprocess(*OPTIONS, *more)

    return make


def test_a_generator_that_wrote_nothing_is_warned_of_and_red_with_strict(answering):
    run = answering('yield Answer(number, index, "")')
    done = run("--kernelllm-report=report.json")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["own wrote no candidate: the model wrote nothing."])
    strict = run("--kernelllm-strict", "--deselect=layers.py::Scale::verified", "-k", "not verified")
    strict.assert_outcomes(skipped=16, deselected=2)
    assert strict.ret == 1, "also where no item asks for a kernel"


def test_a_model_that_never_answered_is_an_error_and_said_once(answering):
    why = "The endpoint http://x answered with half a JSON (5 tries)."
    done = answering(f'yield Answer(number, index, "", finish="failed", note="{why}")')()
    assert done.ret == 1
    done.assert_outcomes(failed=1, skipped=15)
    printed = [line for line in done.outlines if why in line and not line.startswith("FAILED")]
    assert len(printed) == 1, printed


def test_an_answer_that_was_cut_off_names_the_limit_and_what_raises_it(answering):
    half = GOOD[: GOOD.index("WIDTH=64)")]
    done = answering(f'yield Answer(number, index, {half!r}, finish="length")')("-k", "own-0 and Scale")
    said = done.stdout.str()
    assert "the answer was cut off at 77 tokens: raise `max_new_tokens`" in said
    assert "never closed" not in said
