"""Kernels are cut out of a checkout whole: with all that they need, and nothing else of the project."""

import ast
import textwrap
from pathlib import Path

import pytest

from benchmarks.public_kernels.catalogue import Entry, read
from benchmarks.public_kernels.cut import CutError, Project, cut
from benchmarks.public_kernels.projects import PROJECTS

FILES = {
    "kernels/__init__.py": "from kernels.ops.scale import scale",
    "kernels/ops/__init__.py": "from .scale import scale",
    "kernels/ops/scale.py": """
        import logging
        import functools
        import torch as t
        from kernels.utils import contiguous, settings as chosen
        from kernels import helpers
        from ..launch import launched, on_device

        logger = logging.getLogger(__name__)
        UNUSED = open("/nowhere")
        if chosen(2) > 1:
            FACTOR = 2
        else:
            FACTOR = 3

        class Scale:
            @staticmethod
            @contiguous
            def forward(ctx, x):
                logger.debug("scale")
                with on_device(x.device):
                    return helpers.times(x, FACTOR)

        @launched(key="n")
        def scale(x, contiguous=1):
            if contiguous:
                logger.info("never read")
            return Scale.forward(None, x)

        def alone(x):
            return t.relu(x)

        apply = Scale.forward
    """,
    "kernels/utils.py": """
        import functools
        from kernels.missing import nothing

        def contiguous(function):
            @functools.wraps(function)
            def wrapper(ctx, x):
                return function(ctx, x.contiguous())
            return wrapper

        def settings(n):
            return max(n, 4)
    """,
    "kernels/helpers.py": """
        def times(x, n):
            return _times(x) * n

        def _times(x):
            return x if x is None else times(x, 0) if x == "loop" else x
    """,
    "kernels/launch.py": "def launched(key):\n    raise ImportError\n\ndef on_device(device):\n    raise ImportError",
    "kernels/shadows.py": """
        from kernels.utils import settings

        def max(x):
            return settings(x)
    """,
    "kernels/twice.py": """
        from kernels.helpers import times as other_times

        def times(x, n):
            return other_times(x, n)
    """,
    "kernels/incomplete.py": "def lost(x):\n    return gone(x)",
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    return Project(tmp_path, plumbing=("logger", "launched", "on_device"))


def run(source):
    names = {}
    exec(source, names)
    return names


class Tensor(int):
    device = "cpu"

    def contiguous(self):
        return Tensor(self + 100)


def test_a_function_is_cut_out_with_its_guards_and_without_plumbing(project):
    source = cut(project, Path("kernels/ops/scale.py"), ["scale"])
    names = run(source)
    assert names["scale"](Tensor(1)) == 202  # made contiguous, and times 2
    assert not {"UNUSED", "alone", "apply", "logger", "launched", "on_device", "t"} & names.keys()
    assert "kernels" not in source and "logging" not in source


def test_an_alias_brings_what_it_stands_for(project):
    names = run(cut(project, Path("kernels/ops/scale.py"), ["apply"]))
    assert names["apply"](None, Tensor(1)) == 202 and "scale" not in names


def test_a_package_gives_the_function_of_a_modules_name(project):
    assert "def scale" in cut(project, Path("kernels/__init__.py"), ["scale"])


def test_imports_from_elsewhere_stay(project):
    assert cut(project, Path("kernels/ops/scale.py"), ["alone"]).startswith("import torch as t\n")


def test_what_a_project_replaces_is_taken_instead(project):
    replaced = {"settings": "def settings(n):\n    return 9"}
    names = run(
        cut(Project(project.root, replaced, project.plumbing), Path("kernels/shadows.py"), ["settings"])
    )
    assert names["settings"](1) == 9


def test_calls_are_rewritten(project):
    def constant(call):
        return ast.Constant(1) if ast.unparse(call.func) == "settings" else call

    names = run(cut(Project(project.root, rewrite=constant), Path("kernels/shadows.py"), ["max"]))
    assert names["max"](5) == 1 and "settings" not in names


@pytest.mark.parametrize(
    ("file", "name", "words"),
    [
        ("kernels/shadows.py", "max", "max means Python's own in one file"),
        ("kernels/twice.py", "times", "Two definitions would be called times"),
        ("kernels/twice.py", "nothing", "defines no nothing"),
        ("kernels/incomplete.py", "lost", "uses gone in lost"),
        ("kernels/absent.py", "x", "absent.py cannot be read"),
    ],
)
def test_a_cut_that_would_damage_a_kernel_is_refused(project, file, name, words):
    with pytest.raises(CutError) as refused:
        cut(project, Path(file), [name])
    assert words in str(refused.value)


@pytest.mark.parametrize("name", PROJECTS)
def test_every_entry_of_the_catalogue_is_python(name):
    entries = read(name)
    assert len({entry.name for entry in entries}) == len(entries) > 4
    for entry in entries:
        ast.parse(entry.reference_source())
        assert "def forward(self, " in entry.candidate_source("x = 1\n")


def test_a_pair_has_the_form_that_verify_reads(tmp_path):
    from pytest_kernelllm.beside.verify.pairs import find_reference

    for train in (False, True):
        entry = Entry(
            "p_x",
            "f.py",
            "f",
            "x",
            "torch.ones(3)",
            "x + self.w",
            "f(x)",
            {"w": "torch.ones(3)"},
            train=train,
        )
        reference = tmp_path / f"{train}.py"
        reference.write_text(entry.reference_source())
        target = find_reference(str(reference))
        assert not isinstance(target, str) and target.name == "Model", target
