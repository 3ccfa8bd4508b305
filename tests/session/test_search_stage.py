"""The search stage, with a measuring function handed in: what it keeps, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contexts import context

from kernelllm_judge.core.measured import CaseTime, Measured
from kernelllm_judge.core.records import Case, Completion, Domain, Environment, Target
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.inductor.sections import Section
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.generators import PooledInductor
from pytest_kernelllm.session.search import SearchStage
from pytest_kernelllm.session.session import open_session

GPU = Environment("cuda", gpu="NVIDIA H200", arch="sm_90")


def written(index: int, block: int, note: str, source: str = "plain") -> Completion:
    launches = {"kernel": {"XBLOCK": block, "num_warps": 4}}
    section = Section(
        Case("default", None, Domain({}, {})), ("x",), {"tensor": 0}, launches=launches, source=source
    )
    return Completion("inductor", index, sections.write([section]), "inductor", note=note)


def block_of(completion: Completion) -> int:
    return sections.read(completion.text)[0].launches["kernel"]["XBLOCK"]


USUAL = written(0, 32, "Inductor's fusion")
LOOPED = written(1, 32, "looped reductions", "looped")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    file = tmp_path / "m.py"
    file.write_text(
        "from torch import nn\nfrom pytest_kernelllm import triton_candidate\n"
        "@triton_candidate(inputs=lambda: None)\nclass M(nn.Module): ...\n"
    )
    return scan_file(file, tmp_path).targets[0]


class Gpu:
    """A GPU on which the looped program is faster, best with blocks of 256."""

    slots = 2

    def __init__(self) -> None:
        self.measured: list[str] = []

    def measure(self, target: Target, completion: Completion) -> Measured:
        self.measured.append(completion.text)
        slower = abs(block_of(completion).bit_length() - 9) + 4 * ("looped" not in completion.text)
        return Measured((CaseTime("default", 10.0 + slower, 1.0),), seconds=0.5)


class Absent(Gpu):
    """No GPU."""

    def measure(self, target: Target, completion: Completion) -> Measured:
        return Measured(error="there is no GPU")


class Writing:
    """Processes that write so many completions."""

    def __init__(self, *written: Completion) -> None:
        self.written = list(written)

    def write(self, target: Target, indices: object) -> Iterator[Completion]:
        yield from self.written


class Searching:
    """A search that finds what is given; without it, it must not be asked."""

    def __init__(self, found: Completion | None = None) -> None:
        self.found = found

    def fastest(self, target: Target, written: object) -> Completion:
        assert self.found is not None, "searched"
        return self.found


def stage(root: Path, gpu: Gpu, seconds: float = 100.0, environment: Environment = GPU) -> SearchStage:
    return SearchStage(context(root, environment, search=seconds), gpu)


def test_the_fastest_program_is_written_as_inductor_writes(tmp_path: Path, target: Target) -> None:
    best = stage(tmp_path, Gpu()).fastest(target, [USUAL, LOOPED])
    assert block_of(best) == 256
    assert "looped" in best.text
    assert best.note.startswith("looped reductions; searched: 1.70 times as fast, ")


def test_what_was_measured_is_not_measured_again(tmp_path: Path, target: Target) -> None:
    gpu = Gpu()
    first = stage(tmp_path, gpu, seconds=1.0).fastest(target, [USUAL, LOOPED])
    interrupted = len(gpu.measured)
    assert block_of(first) != 256
    assert block_of(stage(tmp_path, gpu).fastest(target, [USUAL, LOOPED])) == 256
    assert len(gpu.measured) == len(set(gpu.measured)) > interrupted


def test_another_gpu_is_measured_anew(tmp_path: Path, target: Target) -> None:
    gpu = Gpu()
    stage(tmp_path, gpu).fastest(target, [USUAL])
    before = len(gpu.measured)
    stage(tmp_path, gpu, environment=Environment("cuda", gpu="A100")).fastest(target, [USUAL])
    assert len(gpu.measured) == 2 * before


def test_a_program_that_cannot_be_measured_stays_and_says_why(tmp_path: Path, target: Target) -> None:
    search = stage(tmp_path, Absent(), 9.0)
    best = search.fastest(target, [USUAL])
    assert best.text == USUAL.text
    assert best.note == "Inductor's fusion; not searched: there is no GPU"


def test_the_fastest_is_the_first_and_comes_last_after_those_that_are_judged_meanwhile(
    tmp_path: Path, target: Target
) -> None:
    def generate(*indices: int) -> list[tuple[int, str]]:
        search = stage(tmp_path, Gpu())
        generator = PooledInductor("sm_90", Writing(USUAL, LOOPED), search, "10s on H200")
        return [(each.index, each.note[:6]) for each in generator._completions(target, indices)]

    assert generate(0) == [(0, "looped")]
    assert generate(0, 1, 2, 3) == [(1, "Induct"), (2, "looped"), (0, "looped")]
    assert generate(0, 1) == [(1, "Induct"), (0, "looped")]
    assert generate(1) == [(1, "Induct")]


def test_where_a_search_finds_nothing_faster_nothing_is_judged_twice(target: Target) -> None:
    generator = PooledInductor("sm_90", Writing(USUAL, LOOPED), Searching(USUAL))
    assert [(each.index, each.text) for each in generator._completions(target, [0, 1])] == [
        (1, USUAL.text),
        (0, LOOPED.text),
    ]
    assert [each.index for each in generator._completions(target, [0, 1, 2])] == [1, 2]


def test_what_a_search_finds_has_an_identity_of_its_own() -> None:
    def identity(searched_for: str) -> str:
        return PooledInductor("sm_90", Writing(), Searching(USUAL), searched_for).identity()

    assert identity("10s on H200") != identity("10s on H100")
    assert PooledInductor("sm_90", Writing()).identity() not in (identity(""), identity("10s on H200"))


def test_a_target_without_kernels_is_not_searched(target: Target) -> None:
    nothing = Completion("inductor", 3, "", "inductor", note="nothing but library calls is left")

    generator = PooledInductor("sm_90", Writing(nothing), Searching())
    assert [(each.index, each.note) for each in generator._completions(target, [1])] == [(1, nothing.note)]


@pytest.mark.parametrize(
    ("settings", "words"), [({}, ""), ({"search": 5.0}, "search: off, because there is no GPU")]
)
def test_nothing_is_said_about_a_search_that_nobody_asked_for(
    tmp_path: Path, settings: dict[str, float], words: str
) -> None:
    with open_session(tmp_path, Settings(generator="inductor", device="cpu", **settings)) as session:
        assert session.search_in_words == words
