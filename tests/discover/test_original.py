"""The text of a marked class: in the file, in another file of the project, and in an installed package."""

import textwrap

import pytest

from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.discover.original import original
from pytest_kernelllm.discover.scan import scan


@pytest.fixture
def found(tmp_path):
    """Writes files, and returns each target's original by name."""

    def find(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        project = ProjectSources(tmp_path)
        return {target.name: original(project, target) for target in scan([tmp_path], tmp_path).targets}

    return find


def test_a_decorated_class_begins_with_its_marker(found):
    texts = found(
        layers="""
        from pytest_kernelllm import triton_candidate

        class Outer:
            @triton_candidate(init=(4,))
            class Größe(nn.Module):
                pass
        """
    )
    shown = texts["Outer.Größe"]
    assert (shown.path, shown.line) == ("layers.py", 5)
    assert shown.text == "@triton_candidate(init=(4,))\nclass Größe(nn.Module):\n    pass"


def test_a_class_that_is_marked_elsewhere_is_found_where_it_is_defined(found):
    texts = found(
        layers="class Scale(nn.Module):\n    width = 3\n",
        marks="from pytest_kernelllm import triton_candidate\nfrom layers import Scale as S\ntriton_candidate(S)\n",
    )
    assert (texts["S"].path, texts["S"].line) == ("layers.py", 1)
    assert texts["S"].text.endswith("width = 3")


def test_a_class_of_an_installed_package_is_found_without_importing_it(found):
    texts = found(
        marks="""
        import json.decoder as d
        from pytest_kernelllm import triton_candidate
        from email.message import Message
        triton_candidate(d.JSONDecoder)
        triton_candidate(Message)
        """
    )
    assert texts["JSONDecoder"].path == "json/decoder.py"
    assert texts["JSONDecoder"].text.startswith("class JSONDecoder(object):")
    assert texts["Message"].path == "email/message.py"


def test_what_cannot_be_found_without_running_code_is_none(found):
    texts = found(
        marks="""
        from pytest_kernelllm import triton_candidate
        from no_such_package import Layer
        from sys import version_info
        Made = type("Made", (), {})
        triton_candidate(Layer)
        triton_candidate(Made)
        triton_candidate(version_info)
        """
    )
    assert texts == {"Layer": None, "Made": None, "version_info": None}
