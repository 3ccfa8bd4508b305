"""Numbers that pages state, compared with the code that holds them."""

from typing import get_args

import pytest
from sessions import page

from kernelllm_judge import judging as judge
from kernelllm_judge.core.records import Stage
from kernelllm_judge.isolation.processes import ResourceBounds
from kernelllm_judge.policy import Policy
from kernelllm_judge.rules.again import Repeat
from kernelllm_judge.rules.timing import Recheck, RooflineRule
from kernelllm_judge.rules.work import DeviceTime, TorchShare
from kernelllm_judge.shared.buffers import GUARD
from kernelllm_judge.timing import timing
from kernelllm_judge.truth import honest
from kernelllm_judge.truth.rows import ROW
from pytest_kernelllm.pool.engine import MEMORY, PER_GPU
from pytest_kernelllm.store import hub
from pytest_kernelllm.store.signing import SHORTEST
from pytest_kernelllm.suggest.github import artifact
from pytest_kernelllm.web.retry import RequestLimits

P = Policy()
WORDS = {3: "three", 8: "eight"}

STATED = {
    "explanation/trust.md": [
        f"compute on {TorchShare().share:.0%} as many elements",
        f"at least {DeviceTime().share:.0%} of the call's time, or the rest at most {DeviceTime().glue_us:.0f} µs",
        f"repeated {Repeat().on_gpu} times, and the outputs of about {Recheck().share:.0%} of the timed calls",
        f"guard zones of {GUARD >> 10} KiB",
    ],
    "explanation/numerics.md": [
        f"{P.single_eps:.0f} eps (1.9e-6 for float32)",
        f"at most {P.most_terms:,}",
        f"in {honest.PARTS} parts",
        f"sums in {honest.PARTS**2:,} blocks and as one tree",
        f"at {P.honest_runs} inputs with other last digits",
        f"in {P.honest_runs} other directions",
        f"{P.half_eps} eps, which is three roundings",
        f"and in 1 of {1 / P.flipped:.0f} besides",
        f"{P.own_factor:.0f} times the largest error of its row",
        f"at most {P.rms_factor} times theirs, and {P.rms_chance:.0f}/√n times so much",
        f"rows shorter than {ROW}",
        f"moves by {0.5 * P.conditioning_eps:.0f} to {1.5 * P.conditioning_eps:.0f} float32 eps",
        f"{P.seeds} seeds at the main sizes",
        f"up to {P.gpu_stress_elements:,} elements",
    ],
    "explanation/timing.md": [
        f"in {timing.FEWEST_ROUNDS} to {P.timing_rounds} rounds in random order, {P.timing_calls} calls each",
        f"{P.between_runs:.1%} is added",
        f"by more than {P.clock_tolerance:.0%} and 3 µs",
        f"less than {RooflineRule().slack:.0%} of the time",
        f"up to {timing.CLOCK_TRIES} times behind each of {timing.CLOCK_ATTEMPTS} numbers of overwrites",
        f"at most {judge.HALVINGS} times halved",
    ],
    "explanation/isolation.md": [
        f"{ResourceBounds().tasks} processes and threads",
        f"{ResourceBounds().disk >> 30} GiB and {ResourceBounds().files:,} entries in the scratch folder",
    ],
    "how-to/endpoint.md": [
        f"{RequestLimits().tries} tries, at most {RequestLimits().total / 60:.0f} minutes",
        f"`wake_timeout` ({RequestLimits().wake:.0f} s)",
        f"nothing arrives for {RequestLimits().idle / 60:.0f} minutes",
    ],
    "how-to/many-gpus.md": [
        f"Up to {WORDS[PER_GPU]} judging processes",
        f"less than {MEMORY >> 30} GiB of free memory",
    ],
    "how-to/share-the-store.md": [
        f"at least {SHORTEST} characters",
        f"at most {hub.LARGEST >> 20} MiB each and {hub.MOST:,} of them",
    ],
    "how-to/debug-a-rejection.md": [f"in order: {', '.join(get_args(Stage))}."],
    "reference/github-action.md": [
        f"at most {artifact.MOST_FILES} files, {artifact.LARGEST_FILE >> 20} MiB each, "
        f"{artifact.LARGEST_TOTAL >> 20} MiB together",
        f"at most {artifact.LARGEST_PATCH >> 20} MiB",
    ],
}
"""By page, what it says with the values of the code."""


@pytest.mark.parametrize("name", STATED)
def test_a_page_states_the_numbers_of_the_code(name):
    text = " ".join(page(name).split()).replace(" %", "%")
    assert [stated for stated in STATED[name] if stated not in text] == []
