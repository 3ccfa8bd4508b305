from pathlib import Path

import pytest

from kernelllm_judge.core.records import Target
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.place import KernelPlace, place


def target(path: str, name: str = "RMSNorm", kernel: str | None = None) -> Target:
    return Target(path, name, 1, "h", "decorator", kernel)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for package in ("src/pkg", "src/pkg/sub"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


def test_in_a_package(root: Path) -> None:
    expected = KernelPlace(
        "src/pkg/_triton/rms_norm.py", "pkg._triton.rms_norm", "src/pkg/_triton/__init__.py"
    )
    assert place(root, target("src/pkg/layers.py")) == expected
    assert place(root, target("src/pkg/sub/layers.py")).dotted == "pkg.sub._triton.rms_norm"


def test_names_are_spelled_as_people_write_them_and_older_ones_stay(root: Path) -> None:
    assert place(root, target("src/pkg/a.py", "SwiGLU")).path == "src/pkg/_triton/swiglu.py"
    older = target("src/pkg/a.py", "SwiGLU", "pkg._triton.swi_glu")
    assert place(root, older).path == "src/pkg/_triton/swi_glu.py"


def test_beside_a_loose_file(root: Path) -> None:
    assert place(root, target("scripts/model.py")) == KernelPlace(
        "scripts/_triton/rms_norm.py", "_triton.rms_norm", None
    )
    assert place(root, target("model.py")) == KernelPlace("_triton/rms_norm.py", "_triton.rms_norm", None)


def test_collisions_do_not_depend_on_order(root: Path) -> None:
    several = [
        target("src/pkg/a.py"),
        target("src/pkg/b.py"),
        target("src/pkg/b.py", "RmsNorm"),
        target("src/pkg/c.py", "Other"),
        target("src/pkg/sub/a.py"),
        target("loose/a.py", "Alone"),
        target("loose/a.py"),
        target("other/a.py"),
    ]
    forwards = {t.id: place(root, t, several).dotted for t in several}
    backwards = {t.id: place(root, t, several[::-1]).dotted for t in several[::-1]}
    assert forwards == backwards
    assert len(set(forwards.values())) == len(several)
    assert forwards["src/pkg/a.py::RMSNorm"] == "pkg._triton.a_rms_norm"
    assert forwards["src/pkg/c.py::Other"] == "pkg._triton.other"
    assert forwards["src/pkg/sub/a.py::RMSNorm"] == "pkg.sub._triton.rms_norm"


def test_a_file_of_another_target_is_not_taken(root: Path) -> None:
    (root / "src/pkg/_triton").mkdir()
    file = root / "src/pkg/_triton/rms_norm.py"
    file.write_text("# Triton kernel for src/pkg/a.py::RMSNorm\n")
    assert place(root, target("src/pkg/a.py")).dotted == "pkg._triton.rms_norm"
    assert place(root, target("src/pkg/b.py")).dotted == "pkg._triton.b_rms_norm"
    file.write_text("handwritten = True\n")
    assert place(root, target("src/pkg/a.py")).dotted == "pkg._triton.a_rms_norm"


def test_an_adopted_kernel_stays_where_it_is(root: Path) -> None:
    adopted = target("src/pkg/a.py", kernel="pkg._triton.my_norm")
    assert place(root, adopted, [adopted, target("src/pkg/b.py")]).path == "src/pkg/_triton/my_norm.py"
    elsewhere = target("src/pkg/a.py", kernel="other.kernels.norm")
    assert place(root, elsewhere).dotted == "pkg._triton.rms_norm"


@pytest.mark.parametrize(
    "name", ["TestNorm", "NormTest", "Conftest", "Lambda", "Con", "Aux", "Com1", "Setup", "Sitecustomize"]
)
def test_names_that_python_or_pytest_would_take_for_their_own(root: Path, name: str) -> None:
    module = place(root, target("src/pkg/a.py", name)).dotted.rpartition(".")[2]
    assert module.startswith("kernel_") and module.endswith("_kernel")


def test_a_hand_written_file_that_a_marker_names_is_not_overwritten(root: Path) -> None:
    (root / "src/pkg/_triton").mkdir()
    file = root / "src/pkg/_triton/mine.py"
    adopted = target("src/pkg/a.py", kernel="pkg._triton.mine")
    file.write_text('"""Written by hand."""\n')
    assert place(root, adopted).dotted == "pkg._triton.rms_norm"
    file.write_text("# Triton kernel for src/pkg/older.py::Name\n")
    assert place(root, adopted).dotted == "pkg._triton.mine"


def test_a_folder_of_another_name_beside_each_file(root: Path) -> None:
    expected = KernelPlace(
        "src/pkg/kernels/rms_norm.py", "pkg.kernels.rms_norm", "src/pkg/kernels/__init__.py"
    )
    assert place(root, target("src/pkg/a.py"), folder="kernels") == expected
    assert place(root, target("model.py"), folder="kernels").dotted == "kernels.rms_norm"
    older = target("src/pkg/a.py", kernel="pkg._triton.rms_norm")
    assert place(root, older, folder="kernels").dotted == "pkg._triton.rms_norm"


def test_one_folder_for_all(root: Path) -> None:
    several = [target("src/pkg/a.py"), target("src/pkg/sub/b.py"), target("src/pkg/sub/b.py", "Other")]
    places = [place(root, each, several, "src/pkg/kernels") for each in several]
    assert [each.dotted.removeprefix("pkg.kernels.") for each in places] == [
        "a_rms_norm",
        "b_rms_norm",
        "other",
    ]
    assert places[2] == KernelPlace(
        "src/pkg/kernels/other.py", "pkg.kernels.other", "src/pkg/kernels/__init__.py"
    )
    adopted = target("src/pkg/sub/c.py", "Other", "pkg.kernels.other")
    assert place(root, adopted, several, "src/pkg/kernels") == places[2]
    with pytest.raises(
        PatchError, match=r"^Kernels in src/pkg/fast/kernels cannot be imported by src/pkg/a\.py; "
    ):
        place(root, several[0], several, "src/pkg/fast/kernels")


@pytest.mark.parametrize("folder", ["", "my kernels", "../kernels", "/kernels", "a.b"])
def test_a_folder_that_cannot_be_imported_from_is_refused(root: Path, folder: str) -> None:
    with pytest.raises(PatchError, match="Kernels cannot be imported from a folder"):
        place(root, target("src/pkg/a.py"), folder=folder)
