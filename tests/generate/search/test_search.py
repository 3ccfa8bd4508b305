"""The search, with a measuring function handed in: what it finds, when it ends, what it measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from without_torch import run_without_torch

from kernelllm_judge.core.measured import CaseTime, Measured
from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.render.inductor.sections import Section
from pytest_kernelllm.generate.search.case_search import steps
from pytest_kernelllm.generate.search.search import Found, Program, search

USUAL = {"XBLOCK": 32, "num_warps": 8}


def section(case: str = "default", source: str = "plain", **launches: dict[str, int]) -> Section:
    sizes = {"rows": len(case)}  # other ones for other cases
    return Section(
        Case(case, None, Domain({}, {}), sizes),
        ("x",),
        None,
        launches=launches or {"one": USUAL},
        source=source,
    )


def distance(launch: dict[str, int], x: int, warps: int) -> float:
    return abs(math.log2(launch["XBLOCK"] / x)) + abs(math.log2(launch["num_warps"] / warps))


def best_at_512(each: Section) -> float:
    """10 µs with blocks of 512 and 2 warps in every kernel; each step away from it costs 1 µs."""
    return 10 + sum(distance(launch, 512, 2) for launch in each.launches.values())


class Bench:
    """Measures by a formula, and counts."""

    def __init__(self, cost: Callable[[Section], float], roofline: float = 1.0, seconds: float = 1.0) -> None:
        self.cost, self.roofline, self.seconds = cost, roofline, seconds
        self.programs: list[Program] = []
        self.rounds: list[int] = []

    def __call__(self, programs: Sequence[Program]) -> list[Measured]:
        self.programs += programs
        self.rounds.append(len(programs))
        return [self._one(program) for program in programs]

    def _one(self, program: Program) -> Measured:
        try:
            times = tuple(CaseTime(each.case.name, self.cost(each), self.roofline) for each in program)
        except OverflowError as error:
            return Measured(error=str(error), seconds=self.seconds)
        return Measured(times, seconds=self.seconds)

    def search(self, *starts: Program, seconds: float = 1e9, side_by_side: int = 4) -> Found:
        return search(starts, self, seconds=seconds, side_by_side=side_by_side)


def test_pytests_own_process_searches_without_torch() -> None:
    done = run_without_torch(
        """
from kernelllm_judge.core.measured import CaseTime, Measured
from kernelllm_judge.core.records import Case, Domain, TensorSpec
from kernelllm_judge.render.inductor.sections import Section, read, write
from pytest_kernelllm.generate.search.search import search
import pytest_kernelllm.session.search

def measured(programs):
    return [Measured((CaseTime("default", program[0].launches["one"]["XBLOCK"], 1.0),), seconds=1.0) for program in programs]

inputs = {"x": TensorSpec("float32", ("rows", 8))}
case = Case("default", None, Domain(inputs, {}, {"rows": (1, 64)}), {"rows": 16})
start = Section(case, ("x",), None, launches={"one": {"XBLOCK": 32, "num_warps": 8}}, source="plain")
found = search([tuple(read(write((start,))))], measured, seconds=10, side_by_side=4)
print(found.program[0].launches)
"""
    )
    assert "XBLOCK" in done.stdout, done.stderr


def test_cases_that_nothing_tells_apart_have_one_program() -> None:
    def alike(case: str, rows: int) -> Section:
        return replace(section(case), case=Case(case, None, Domain({}, {}), {"rows": rows}))

    def cost(each: Section) -> float:
        return 10 + distance(each.launches["one"], 512 if each.case.name == "normal" else 32, 2)

    found = Bench(cost).search((alike("normal", 4), alike("uniform", 4), alike("long", 9)))
    assert [each.case.name for each in found.program] == ["normal", "uniform", "long"]
    assert [each.launches["one"]["XBLOCK"] for each in found.program] == [512, 512, 32]


def test_cases_with_equally_many_elements_have_one_program() -> None:
    domain = Domain(
        {"x": TensorSpec("float32", ("rows", "columns", 8))}, {}, {"rows": (1, 9), "columns": (1, 9)}
    )

    def of(case: str, rows: int, columns: int) -> Section:
        return replace(section(case), case=Case(case, None, domain, {"rows": rows, "columns": columns}))

    def cost(each: Section) -> float:
        return 10 + distance(each.launches["one"], 512 if each.case.name == "wide" else 32, 2)

    found = Bench(cost).search((of("wide", 1, 9), of("tall", 9, 1), of("small", 2, 2)))
    assert [each.launches["one"]["XBLOCK"] for each in found.program] == [512, 512, 32]


def test_it_descends_to_the_fastest_configuration() -> None:
    bench = Bench(best_at_512)
    found = bench.search((section(),))
    assert found.program[0].launches == {"one": {"XBLOCK": 512, "num_warps": 2}}
    assert found.gain == pytest.approx(16 / 10)
    assert found.tried == len(bench.programs) < 40


def test_every_kernel_gets_its_own() -> None:
    def cost(each: Section) -> float:
        return 10 + distance(each.launches["one"], 64, 4) + distance(each.launches["two"], 16, 8)

    found = Bench(cost).search((section(one=USUAL, two=USUAL),))
    assert found.program[0].launches == {
        "one": {"XBLOCK": 64, "num_warps": 4},
        "two": {"XBLOCK": 16, "num_warps": 8},
    }


def test_each_case_gets_its_own_and_one_measurement_serves_both() -> None:
    def cost(each: Section) -> float:
        return 10 + distance(each.launches["one"], 512 if each.case.name == "long" else 32, 2)

    bench = Bench(cost)
    found = bench.search((section("short"), section("long")))
    assert [each.launches["one"]["XBLOCK"] for each in found.program] == [32, 512]
    assert len(bench.programs) < 40


def test_nothing_is_measured_twice() -> None:
    bench = Bench(best_at_512)
    bench.search((section(),), (section(),), (section(one={"XBLOCK": 64, "num_warps": 8}),))
    texts = [repr(program) for program in bench.programs]
    assert len(texts) == len(set(texts))


def test_configurations_of_one_kernel_are_tried_in_programs_with_several() -> None:
    """Inductor's own configurations that are many steps away."""
    far = {"XBLOCK": 4096, "num_warps": 16}
    found = Bench(
        lambda each: 10.0 - 5 * (each.launches["one"] == far) + 9 * (each.launches["two"] == far)
    ).search((section(one=USUAL, two=USUAL),), (section(one=far, two=far),))
    assert found.program[0].launches == {"one": far, "two": USUAL}


def test_another_program_may_win_once_its_configurations_are_searched() -> None:
    def cost(each: Section) -> float:
        return 40 + best_at_512(each) - (5 if each.source == "looped" else 2)  # 54 and 55 at first

    found = Bench(cost).search((section(),), (section(source="looped", one={"XBLOCK": 8, "num_warps": 32}),))
    assert found.program[0].source == "looped"
    assert found.program[0].launches["one"]["XBLOCK"] == 512


@pytest.mark.parametrize("roofline", [50.0, 54.0, 60.0])  # 56 at first
def test_near_the_roofline_only_the_fastest_program_is_searched(roofline: float) -> None:
    """It may gain all the same: the roofline is the rate of a copy, and no bound."""
    looped = section(source="looped", one={"XBLOCK": 64, "num_warps": 8})

    def cost(each: Section) -> float:
        return 40 + best_at_512(each) + (2 if each.source == "looped" else 0)

    bench = Bench(cost, roofline)
    assert bench.search((section(),), (looped,)).program[0].launches["one"] == {
        "XBLOCK": 512,
        "num_warps": 2,
    }
    assert [each for (each,) in bench.programs if each.source == "looped"] == [looped]
    far = Bench(cost)
    far.search((section(),), (looped,))
    assert sum(each.source == "looped" for (each,) in far.programs) > 1


def test_a_roofline_that_is_passed_by_far_bounds_nothing() -> None:
    looped = section(source="looped", one={"XBLOCK": 64, "num_warps": 8})

    def cost(each: Section) -> float:
        return 40 + best_at_512(each) - (5 if each.source == "looped" else -1)

    bench = Bench(lambda each: cost(each) + 8 * (each.launches["one"] == looped.launches["one"]), 75.0)
    assert bench.search((section(),), (looped,)).program[0].source == "looped"


def test_what_inductor_would_choose_from_is_measured_near_the_roofline_too() -> None:
    usual, second = (section(one={"XBLOCK": 512, "num_warps": warps}) for warps in (4, 2))
    bench = Bench(best_at_512, roofline=10.48)  # 95 % of what the usual one takes
    assert bench.search((usual,), (second,), side_by_side=1).program == (second,)
    assert bench.programs[:2] == [(usual,), (second,)]


def test_it_ends_before_the_budget_would_be_exceeded() -> None:
    bench = Bench(best_at_512, seconds=2.0)
    found = bench.search((section(),), seconds=5.0, side_by_side=2)
    assert bench.rounds == [1, 2]  # side by side counts once
    assert found.seconds == 4.0


def test_no_budget_measures_nothing() -> None:
    bench = Bench(best_at_512)
    assert bench.search((section(),), seconds=0).program == (section(),)
    assert not bench.programs


def test_noise_is_no_gain() -> None:
    found = Bench(lambda each: 10.0 if each.launches["one"] == USUAL else 9.95).search((section(),))
    assert found.program == (section(),)
    assert found.gain == 1.0


def test_what_fails_is_left_out() -> None:
    def cost(each: Section) -> float:
        if each.launches["one"]["XBLOCK"] > 128:
            raise OverflowError("out of resource: shared memory")
        return best_at_512(each)

    found = Bench(cost).search((section(),))
    assert found.program[0].launches["one"] == {"XBLOCK": 128, "num_warps": 2}
    assert not found.error


def test_a_target_that_cannot_be_measured_keeps_its_first_program() -> None:
    def cost(each: Section) -> float:
        raise OverflowError("there is too little GPU memory")

    found = Bench(cost).search((section(),), (section(source="looped"),))
    assert found.program == (section(),)
    assert (found.gain, found.error) == (1.0, "there is too little GPU memory")


def test_blocks_stay_within_what_the_kernels_masks_allow() -> None:
    assert {"XBLOCK": 8192, "num_warps": 8} not in steps({"XBLOCK": 4096, "num_warps": 8})
    assert {"XBLOCK": 1, "num_warps": 1} in steps({"XBLOCK": 2, "num_warps": 1})
    assert all(min(step.values()) >= 1 for step in steps({"XBLOCK": 1, "num_warps": 1}))
    large = {"XBLOCK": 1024, "YBLOCK": 32, "num_warps": 8}
    assert all(step["XBLOCK"] * step["YBLOCK"] <= 1024 * 32 for step in steps(large))
    template = [tuple(step.values()) for step in steps({"num_warps": 4, "num_stages": 3})]
    assert template == [(8, 3), (4, 4), (4, 2)]  # warps and stages; with two warps it spills registers
