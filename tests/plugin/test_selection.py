"""pytest's own ways to select and order tests know kernel items as they know others. Nothing is judged here."""

import pytest
from projects import LAYERS, lay_out

RED = "early/selected_layers.py::Red::correctness[adopted]"
SKIPPED = [
    *(f"early/selected_layers.py::Red::correctness[files-{n}]" for n in (0, 1)),
    *(f"early/selected_layers.py::Red::speedup[{each}]" for each in ("adopted", "files-0", "files-1")),
]
OWN = ["test_own.py::test_first", "test_own.py::test_last"]
OPTIONS = ("--kernelllm", "--kernelllm-device=cpu", "--kernelllm-samples=2", "--kernelllm-generator=files")


@pytest.fixture
def project(pytester):
    """A target whose adopted kernel is gone, so that one of its tests fails at once, and two other tests."""
    lay_out(pytester.path, {})
    gone = LAYERS.replace("class Scale", "class Red").replace("dims={", 'kernel="_triton.gone", dims={')
    (pytester.path / "layers.py").unlink()
    pytester.mkdir("early").joinpath("selected_layers.py").write_text(gone)
    pytester.makepyfile(test_own="def test_first(): pass\ndef test_last(): pass")
    return pytester


RESULTS = ("PASSED", "FAILED", "SKIPPED", "XFAIL")


def ran(project, *more):
    """Returns the ids of what runs, in order."""
    done = project.runpytest_subprocess(*OPTIONS, "--kernelllm-set=candidates_dir=candidates", "-v", *more)
    words = [line.split() for line in done.outlines]
    return [word[0] for word in words if word[1:2] and word[1] in RESULTS and "::" in word[0]]


def collected(project, *more):
    """Returns the ids of what would run, in order."""
    done = project.runpytest_inprocess(
        *OPTIONS, "--kernelllm-set=candidates_dir=candidates", "--collect-only", "-q", *more
    )
    return [line for line in done.outlines if "::" in line]


ALL = [*OWN, RED, *SKIPPED]
SELECTIONS = {
    "--ff": [RED, *OWN, *SKIPPED],
    "--nf": sorted(ALL),
    f"--deselect={RED}": [each for each in ALL if each != RED],
    RED: [RED],
    "-k adopted": [RED, SKIPPED[2]],
}


def in_turn(ids):
    """Returns ids up to the last of other tests, and sorted those of kernels behind it, which come as they fall."""
    last = max((number for number, each in enumerate(ids, 1) if each in OWN), default=0)
    return ids[:last], sorted(ids[last:])


def test_selections_and_orders_of_pytest_know_kernel_items(project):
    found = ran(project, "early", ".")
    assert in_turn(found) == in_turn(ALL), "kernels last, whatever the order of paths"
    ran(project, "--sw")  # stops at the first failure, and remembers it
    assert ran(project, "--sw") == ran(project, "--lf") == [RED]
    for option, wanted in SELECTIONS.items():
        found = collected(project, *option.split(" "))
        assert (sorted(found) if option == "--nf" else in_turn(found)) == (
            wanted if option == "--nf" else in_turn(wanted)
        ), option
