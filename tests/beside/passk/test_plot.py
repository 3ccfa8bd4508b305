"""The picture, as a file."""

import xml.etree.ElementTree as ElementTree

import pytest
from made import benchmark

from pytest_kernelllm.beside.passk.errors import BenchError
from pytest_kernelllm.beside.passk.plot import check_plot, write_plot
from pytest_kernelllm.beside.passk.records import Sample


@pytest.fixture(scope="module")
def made():
    good, bad = Sample(0, "correct"), Sample(1, "run")
    return benchmark({"A": [good, bad, bad, bad], "B": [bad] * 4, "C": [good, good, bad]})


def test_the_svg_has_a_thin_line_a_target_and_a_thick_one_for_the_mean(tmp_path, made):
    write_plot(tmp_path / "new" / "p.svg", made)
    tree = ElementTree.parse(tmp_path / "new" / "p.svg")
    svg = "{http://www.w3.org/2000/svg}"
    assert tree.getroot().tag == f"{svg}svg"
    curves = [
        path.get("style", "")
        for path in tree.iter(f"{svg}path")
        if "stroke-linecap: square" in path.get("style", "")
    ]
    assert sum("stroke: #1f77b4" in style for style in curves) == 3
    assert sum("stroke-width: 2.5" in style for style in curves) == 2  # the line and its legend
    words = {text.text for text in tree.iter(f"{svg}text")}
    assert {"pass@k", "k", "facebook/KernelLLM", "mean of 3 targets", "1", "4"} <= words


@pytest.mark.parametrize("name", ["p.svg", "p.png"])
def test_the_same_benchmark_gives_the_same_bytes(tmp_path, made, name):
    write_plot(tmp_path / name, made)
    first = (tmp_path / name).read_bytes()
    write_plot(tmp_path / name, made)
    assert (tmp_path / name).read_bytes() == first
    assert b"matplotlib.org" not in first.lower() or name == "p.svg"
    assert first.startswith(b"\x89PNG\r\n\x1a\n" if name == "p.png" else b"<?xml")


def test_another_ending_is_refused_before_anything_is_run(tmp_path):
    with pytest.raises(BenchError, match=r"p\.pdf: a plot is written as \.svg or \.png"):
        check_plot(tmp_path / "p.pdf")
