"""Records as JSON, and what a verdict says of itself."""

import json
import math

import jsonschema
import pytest
from hypothesis import given, strategies as st

from kernelllm_judge.core.records import Check, Environment, RecordError, Spread, Verdict
from pytest_kernelllm.report.schema import verdict_schema


@pytest.mark.parametrize(
    ("verdict", "stage", "rule", "correct"),
    [
        ("accepted", "timing", "", True),
        ("accepted", "correctness", "", True),
        ("rejected", "timing", "speed", True),
        ("rejected", "timing", "clocks", False),
        ("rejected", "timing", "device time", False),
        ("rejected", "correctness", "values", False),
        ("inconclusive", "timing", "", False),
    ],
)
def test_a_kernel_is_right_unless_something_but_its_speed_is_against_it(verdict, stage, rule, correct):
    said = Verdict(verdict, stage, "", "0" * 64, Environment("cuda"), rule=rule)
    assert said.correct is correct


@given(st.floats(), st.floats() | st.none() | st.just("not finite"))
def test_every_float_comes_back_from_json(measured, allowed):
    check = Check("output 0", True, measured, allowed)
    text = json.dumps(check.to_json(), allow_nan=False)
    assert repr(Check.from_json(json.loads(text))) == repr(check)


def test_a_verdict_with_numbers_that_json_lacks_follows_its_schema():
    checks = (Check("a", False, math.inf, math.nan), Check("b", False, -math.inf, 1.0))
    verdict = Verdict("rejected", "run", "why", "0" * 64, Environment("cpu"), checks=checks)
    data = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
    jsonschema.validate(data, verdict_schema())
    assert [check["measured"] for check in data["checks"]] == ["inf", "-inf"]
    spread = {"p20": "Infinity", "p50": 1.0, "p80": 1.0}
    with pytest.raises(RecordError, match="p20"):
        Spread.from_json(spread)
    with pytest.raises(RecordError, match="too large"):
        Spread.from_json({**spread, "p20": 10**400})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "seconds": "Infinity"}, verdict_schema())
