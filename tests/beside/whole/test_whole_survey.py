"""Regions of models as they come from their libraries: each runs alone on its inputs, and in its place computes the same."""

import pytest
import torch
from library_models import MODELS, installed

from kernelllm_judge.core.syntax import snake_case
from kernelllm_judge.target.importing import import_file
from kernelllm_runtime.regions.backend import place
from pytest_kernelllm.beside.ranking.factory import build
from pytest_kernelllm.beside.whole.capture import capture
from pytest_kernelllm.beside.whole.errors import floating
from pytest_kernelllm.beside.whole.regions_file import drawable, regions_source, write_source
from pytest_kernelllm.beside.whole.stage import Stage

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", installed())
def test_regions_of_a_model_run_alone_and_compute_the_same_in_their_places(name, tmp_path):
    torch._dynamo.reset()
    stage = Stage(build(MODELS[name], None), {})
    file, placed = tmp_path / f"{name}_regions.py", []
    with stage.opened():
        found = capture(lambda backend: stage.run(stage.by(backend))).regions
        assert found and all(map(drawable, found))
        write_source(file, regions_source(name, found))
        written = import_file(file, tmp_path)
        for each in found:
            inputs = getattr(written, f"{snake_case(each.text.name)}_inputs")()
            getattr(written, each.text.name)()(*inputs)
        modules = {each.text.key: getattr(written, each.text.name)().eval() for each in found}

        def backend(module, inputs):
            placed.extend(place(module, modules))
            return module.forward

        expected = floating(stage.run(stage.by("eager")))
        torch._dynamo.reset()
        returned = floating(stage.run(stage.by(backend)))
    assert set(placed) == set(modules)
    torch.testing.assert_close(returned, expected, rtol=0, atol=0, equal_nan=True)
