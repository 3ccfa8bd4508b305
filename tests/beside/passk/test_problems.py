"""KernelBench's problems: the order in which they are worked on."""

from kernelllm_judge.core.records import Target
from pytest_kernelllm.beside.passk.problems import Problem, interleaved


def target(path):
    return Target(path=path, name="Model", line=1, source_hash="0" * 64, kind="kernelbench")


def test_levels_take_turns_each_in_its_own_order():
    counts = {1: 4, 2: 4, 3: 2}
    problems = {
        f"{level}/{n}": Problem(level, n, f"{n}_a.py")
        for level, count in counts.items()
        for n in range(1, count + 1)
    }
    targets = [target(path) for path in problems]
    assert [t.path for t in interleaved(targets, problems)] == [
        "1/1", "2/1", "3/1", "1/2", "2/2", "1/3", "2/3", "3/2", "1/4", "2/4",
    ]  # fmt: skip


def test_targets_of_no_level_keep_their_order():
    targets = [target(path) for path in ("b", "a", "c")]
    assert interleaved(targets, {}) == targets
    assert interleaved([], {}) == []
