from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_kernelllm.discover.scan import Scan, scan, scan_file


def names(found: Scan) -> list[str]:
    return [target.name for target in found.targets]


@pytest.mark.parametrize(
    ("imports", "marker"),
    [
        ("from pytest_kernelllm import triton_candidate", "triton_candidate"),
        ("from pytest_kernelllm import triton_candidate as tc", "tc"),
        ("from pytest_kernelllm.marker import triton_candidate", "triton_candidate"),
        ("import pytest_kernelllm", "pytest_kernelllm.triton_candidate"),
        ("import pytest_kernelllm as pk", "pk.triton_candidate"),
        ("import pytest_kernelllm.marker", "pytest_kernelllm.marker.triton_candidate"),
        ("from pytest_kernelllm import *", "triton_candidate"),
        ("from kernelllm_runtime import triton_candidate", "triton_candidate"),
        ("from kernelllm_runtime import triton_candidate as tc", "tc"),
        ("import kernelllm_runtime as kr", "kr.triton_candidate"),
        ("from kernelllm_runtime.marker import triton_candidate", "triton_candidate"),
        ("from company.torch_tools import triton_candidate", "triton_candidate"),
        (
            "try:\n    from pytest_kernelllm import triton_candidate\n"
            "except ImportError:\n    def triton_candidate(cls=None, **options): return cls",
            "triton_candidate",
        ),
    ],
)
@pytest.mark.parametrize("arguments", ["", "()", "(init=(3,), inputs=make)"])
def test_marker_is_found_under_every_name(project, imports, marker, arguments):
    root = project.write_files({"layers.py": f"{imports}\n\n@{marker}{arguments}\nclass A: ...\n"})
    assert names(scan([root], root)) == ["A"]


def test_marker_re_exported_by_the_project(project):
    root = project.write_files(
        {
            "shop/__init__.py": "",
            "shop/compat.py": "from pytest_kernelllm import triton_candidate",
            "shop/layers.py": "from .compat import triton_candidate as tc\n@tc\nclass A: ...",
        }
    )
    assert [t.id for t in scan([root], root).targets] == ["shop/layers.py::A"]


def test_other_things_of_that_name_are_no_markers(project):
    root = project.write(
        a="def triton_candidate(cls): return cls\n@triton_candidate\nclass A: ...",
        b="# triton_candidate\nclass B: ...",
        c="from pytest_kernelllm import triton_candidate\nmark = triton_candidate(init=(3,))",
    )
    assert scan([root], root) == Scan()


def test_stacked_and_nested(project):
    root = project.write(
        layers="""
        from pytest_kernelllm import triton_candidate

        @other
        @triton_candidate(kernel="app._triton.outer")
        @another(3)
        class Outer:
            class Plain:
                @triton_candidate
                class Inner: ...

        if FAST:
            @triton_candidate
            class Branch: ...
        """
    )
    found = scan([root], root)
    assert [(t.name, t.line, t.kernel) for t in found.targets] == [
        ("Outer", 5, "app._triton.outer"),
        ("Outer.Plain.Inner", 9, None),
        ("Branch", 13, None),
    ]
    assert {t.kind for t in found.targets} == {"decorator"} and found.problems == ()


def test_calls(project):
    root = project.write(
        conftest="""
        import transformers.models.llama.modeling_llama as modeling
        from pytest_kernelllm import triton_candidate
        from transformers.models.llama.modeling_llama import LlamaRMSNorm

        class Own:
            class Inner: ...

        triton_candidate(LlamaRMSNorm, init=(1024,), kernel="k.norm")
        triton_candidate(modeling.LlamaMLP, init=make)
        triton_candidate(inputs=make)(Own)
        triton_candidate(Own.Inner)
        """
    )
    found = scan([root], root)
    assert [(t.name, t.kind, t.kernel, t.line) for t in found.targets] == [
        ("LlamaRMSNorm", "call", "k.norm", 9),
        ("LlamaMLP", "call", None, 10),
        ("Own", "call", None, 11),
        ("Own.Inner", "call", None, 12),
    ]


def test_same_class_name_from_two_modules_gets_two_names(project):
    root = project.write(
        conftest="""
        from transformers.models.llama import modeling_llama as llama
        from transformers.models.qwen2 import modeling_qwen2 as qwen
        from pytest_kernelllm import triton_candidate
        triton_candidate(llama.RMSNorm)
        triton_candidate(qwen.RMSNorm)
        """
    )
    found = scan([root], root)
    assert names(found) == ["llama.RMSNorm", "qwen.RMSNorm"] and found.problems == ()


def test_last_definition_wins(project):
    root = project.write(
        layers="""
        from pytest_kernelllm import triton_candidate

        @triton_candidate
        class A: ...

        @triton_candidate
        class B: ...

        @triton_candidate
        class A: ...

        class B: ...
        """
    )
    found = scan([root], root)
    assert [(t.name, t.line) for t in found.targets] == [("A", 10)] and found.problems == ()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f():\n    @tc\n    class X: ...", "layers.py:4: class X is defined in a function and cannot"),
        (
            "class C:\n    def f(self):\n        @tc()\n        class X: ...",
            "layers.py:5: class X is defined",
        ),
        ("def f():\n    tc(X)", "layers.py:3: triton_candidate(X, ...) is called in a function and makes"),
        ("for X in XS:\n    tc(X)", "layers.py:3: triton_candidate(X, ...) is called in a loop and makes"),
        ("tc(XS['a'])", "layers.py:2: `XS['a']` does not name a class; pass the class by its name."),
        (
            "if A:\n    @tc\n    class X: ...\nelse:\n    @tc\n    class X: ...",
            "layers.py:7: X is defined and marked on lines 4 and 7; give each a name of its own.",
        ),
        (
            "tc(X, kernel='a')\ntc(X, kernel='b')",
            "layers.py:3: X has another kernel on line 2; keep one kernel=.",
        ),
        ("tc(X, kernel=K)", "layers.py:2: kernel= of X is not a string literal; write the module's"),
        ("class X(:\n  ", "layers.py:2: cannot be read as Python ("),
    ],
)
def test_problems_name_place_and_fix(project, code, message):
    root = project.write_files(
        {"layers.py": f"from pytest_kernelllm import triton_candidate as tc\n{code}\n"}
    )
    (problem,) = scan([root], root).problems
    assert str(problem).startswith(message)


def test_broken_files_matter_only_if_they_mention_the_marker(project):
    root = project.write(broken="class (")
    (root / "latin.py").write_bytes(b"triton_candidate = 'caf\xe9'\n")
    (root / "binary.py").write_bytes(b"\x00\xff")
    (root / "nulls.py").write_bytes(b"triton_candidate\x00")
    (root / "gone.py").symlink_to(root / "nowhere.py")
    assert [p.path for p in scan([root], root).problems] == ["latin.py", "nulls.py"]


def test_walk_is_sorted_and_leaves_out_what_is_not_the_users(project):
    marked = "from pytest_kernelllm import triton_candidate\n@triton_candidate\nclass A: ...\n"
    places = ("z", "b/c", "b/a", "a/conftest", ".hidden/a", "__pycache__/a", "node_modules/a", "env/lib/a")
    places += ("x/site-packages/a", "build/a", "dist/a")
    root = project.write_files({f"{place}.py": marked for place in places})
    (root / "env" / "pyvenv.cfg").touch()
    expected = ["a/conftest.py", "b/a.py", "b/c.py", "z.py"]
    assert [t.path for t in scan([root], root).targets] == expected
    # named on the command line, a folder counts whatever it is called; nothing counts twice
    found = scan([root / "build", root / "z.py", root], root)
    assert [t.path for t in found.targets] == ["build/a.py", "z.py", *expected[:-1]]
    assert [t.path for t in scan([root / "b"], root / "a").targets] == ["../b/a.py", "../b/c.py"]


def test_kernelbench_form_only_when_asked_for(project):
    root = project.write_files(
        {
            "level1/1_Square.py": """
            import torch
            class Model(torch.nn.Module):
                def forward(self, x): return x * x
            N = 16
            def get_inputs(): return [torch.rand(N)]
            def get_init_inputs(): return []
            """,
            "half.py": "class Model: ...\ndef get_init_inputs(): return []\n",
        }
    )
    assert scan([root], root) == Scan()
    (target,) = scan([root], root, kernelbench=True).targets
    assert (target.id, target.kind, target.line) == ("level1/1_Square.py::Model", "kernelbench", 3)


def test_one_file_gives_what_the_walk_gives(project):
    root = project.write(a="from pytest_kernelllm import triton_candidate\n@triton_candidate\nclass A: ...\n")
    assert scan_file(root / "a.py", root) == scan([root], root)


def test_scanning_imports_neither_torch_nor_the_users_code(project):
    text = "from pytest_kernelllm import triton_candidate\nraise SystemExit\n@triton_candidate\nclass A: ..."
    root = project.write(a=text)
    code = (
        "import sys; from pathlib import Path; from pytest_kernelllm.discover.scan import scan\n"
        f"assert scan([Path({str(root)!r})], Path({str(root)!r})).targets\n"
        "assert not {'torch', 'triton', 'libcst', 'rich', 'pytest'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
