"""Repair rounds: who is asked again, with what, how often, and what the store spares."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from standing_now import NOW

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import (
    Candidate,
    CandidateId,
    Completion,
    Environment,
    Ratio,
    Spread,
    Target,
    Timing,
    Verdict,
)
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.generate.protocol import GenerateError, Generator
from pytest_kernelllm.report.json import build_report
from pytest_kernelllm.report.read import Report
from pytest_kernelllm.report.spent import spent
from pytest_kernelllm.report.summary import repairs
from pytest_kernelllm.session.session import Session

ENVIRONMENT = Environment("cpu")
HASH = "ab" * 32


def target(name):
    return Target("layers.py", name, 1, name.encode().hex().ljust(64, "0"), "decorator")


A, B = target("A"), target("B")


class Model(Generator):
    """Answers by a plan: what it says to each sample, round by round."""

    repairs = True

    def __init__(self, plan, name="model", on_gpu=False):
        self.plan, self.name, self.on_gpu = plan, name, on_gpu
        self.asked = []
        self.released = 0

    def identity(self):
        return self.name

    def first(self, target):
        return [
            Completion(self.name, index, answers[0], "modelnew", model="m", tokens=10, cost=0.5)
            for index, answers in enumerate(self.plan)
        ]

    def repair(self, repairs):
        self.asked.append(
            sorted((r.request.target.name, r.request.indices[0], len(r.attempts)) for r in repairs)
        )
        for repair in repairs:
            [index] = repair.request.indices
            text = self.plan[index][len(repair.attempts)]
            if isinstance(text, BaseException):
                raise text
            failed = text == "down"
            yield (
                repair,
                Completion(
                    self.name,
                    index,
                    "" if failed else text,
                    "modelnew",
                    model="m",
                    tokens=10,
                    cost=0.5,
                    failed=failed,
                ),
            )

    def release(self):
        self.released += 1


def timing(speedup):
    spread = Spread(1.0, 1.0, 1.0)
    return Timing("default", spread, spread, spread, spread, Ratio(speedup, speedup, speedup))


def verdict_on(text):
    """``right``, ``wrong``, ``unclear``, ``slow 0.9``: what the judge says to an answer of this text."""
    word, _, speed = text.partition(" ")
    status = {"right": "accepted", "unclear": "inconclusive"}.get(word, "rejected")
    rule = {"wrong": "values", "slow": "speed"}.get(word, "")
    times = (timing(float(speed)),) if speed and word == "slow" else ()
    stage = "timing" if word == "slow" else "correctness"
    return Verdict(
        status, stage, "" if word == "right" else text, HASH, ENVIRONMENT, rule, timing=times, versions=NOW
    )


class Repairing(Session):
    """A session whose answers are judged by their text, without a process."""

    def __init__(self, root, model, rounds):
        super().__init__(root, Settings(generator="files", device="cpu", repair=rounds))
        self.generators = (model,)
        self.processes.load = lambda target: None
        self._drafting = self  # in place of rendering

    def of_completion(self, target, identity, completion):
        costs = {"tokens": completion.tokens, "cost": completion.cost}
        if not completion.text:
            return Outcome(target, identity, reason="nothing", **costs)
        return Outcome(target, identity, Candidate(target.id, completion.text, identity.generator), **costs)

    def judged(self, target, drafts):
        with self._turns.judging():
            return [
                replace(d, verdict=self.verdict(d.candidate.source)) if d.candidate else d for d in drafts
            ]

    def verdict(self, text):
        return verdict_on(text)


def repair(root, model, rounds, on=A, kind=Repairing):
    return repaired(kind(root, model, rounds), model, on)


def repaired(session, model, on):
    first = model.first(on)
    drafts = [session.of_completion(on, CandidateId(model.name, each.index), each) for each in first]
    return session.repaired(on, list(zip(session.judged(on, drafts), first, strict=True)))


def said(outcomes):
    return [outcome.verdict.reason or "right" if outcome.verdict else "" for outcome in outcomes]


def test_only_what_was_rejected_goes_back_and_only_until_it_is_right(tmp_path):
    model = Model([["right"], ["wrong", "right"], ["wrong", "wrong 2", "right"], ["unclear"]])
    outcomes = repair(tmp_path, model, 3)
    assert said(outcomes) == ["right", "right", "right", "unclear"]
    assert model.asked == [[("A", 1, 1), ("A", 2, 1)], [("A", 2, 2)]]
    assert [len(outcome.rounds) for outcome in outcomes] == [0, 2, 3, 0]
    assert [(o.tokens, o.cost, o.answers) for o in outcomes] == [
        (10, 0.5, 1),
        (20, 1.0, 2),
        (30, 1.5, 3),
        (10, 0.5, 1),
    ]
    assert [outcome.repaired for outcome in outcomes] == [0, 1, 2, 0]


def test_no_more_rounds_than_asked_for(tmp_path):
    model = Model([["wrong", "wrong 2", "right"]])
    [outcome] = repair(tmp_path, model, 1)
    assert (said([outcome]), len(model.asked)) == (["wrong 2"], 1)


def test_the_best_answer_counts_not_the_last_one(tmp_path):
    model = Model(
        [
            ["slow 0.5", "slow 0.9", "wrong"],
            ["slow 0.9", "slow 0.5", "wrong"],
            ["wrong", "wrong 2", "wrong 3"],
        ]
    )
    outcomes = repair(tmp_path, model, 2)
    assert said(outcomes) == ["slow 0.9", "slow 0.9", "wrong 3"]
    assert [outcome.repaired for outcome in outcomes] == [1, 0, 2]


def test_an_answer_without_code_goes_back_and_a_target_that_cannot_be_asked_does_not(tmp_path):
    model = Model([["", "right"]])
    assert said(repair(tmp_path, model, 1)) == ["right"]
    silent = Model([["", "right"]], "other")
    silent.first = lambda on: [Completion("other", 0, "", "modelnew", note="it cannot be copied")]
    assert said(repair(tmp_path, silent, 1)) == [""]
    assert silent.asked == []


def test_a_generator_that_cannot_repair_is_not_asked(tmp_path):
    model = Model([["wrong", "right"]])
    model.repairs = False
    assert said(repair(tmp_path, model, 2)) == ["wrong"]


def test_a_second_run_asks_for_nothing_and_one_with_more_rounds_for_those_only(tmp_path):
    plan = [["wrong", "wrong 2", "right"]]
    repair(tmp_path, Model(plan), 1)
    again, more = Model(plan), Model(plan)
    assert said(repair(tmp_path, again, 1)) == ["wrong 2"]
    assert again.asked == []
    assert said(repair(tmp_path, more, 2)) == ["right"]
    assert more.asked == [[("A", 0, 2)]]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    plan = [["wrong", "right"], ["wrong 2", KeyboardInterrupt()]]
    with pytest.raises(KeyboardInterrupt):
        repair(tmp_path, Model(plan), 1)
    plan[1][1] = "right"
    model = Model(plan)
    assert said(repair(tmp_path, model, 1)) == ["right", "right"]
    assert model.asked == [[("A", 1, 1)]], "what arrived before is kept"


def test_another_verdict_on_the_same_text_is_another_question(tmp_path):
    class Stricter(Repairing):
        def verdict(self, text):
            refused = Verdict(
                "rejected", "static check", "line 1", HASH, ENVIRONMENT, "static check", versions=NOW
            )
            return verdict_on(text) if text == "right" else refused

    plan = [["wrong", "right"]]
    repair(tmp_path, Model(plan), 1)
    model = Model(plan)
    repair(tmp_path, model, 1, kind=Stricter)
    assert len(model.asked) == 1


def test_a_server_that_is_down_is_no_round_and_is_asked_again(tmp_path):
    [outcome] = repair(tmp_path, Model([["wrong", "down"]]), 2)
    assert (said([outcome]), outcome.rounds, outcome.unanswered) == (["wrong"], (), 1)
    assert repairs([outcome]).endswith("1 request failed; run again to repeat.")
    model = Model([["wrong", "right"]])
    assert said(repair(tmp_path, model, 2)) == ["right"]
    assert len(model.asked) == 1


def test_a_generator_that_fails_for_good_raises_and_others_go_on(tmp_path):
    with pytest.raises(SessionError, match="no credits"):
        repair(tmp_path, Model([["wrong", GenerateError("no credits")]]), 1)
    assert said(repair(tmp_path, Model([["wrong", "right"]]), 1)) == ["right"]


def test_several_targets_at_once_are_each_asked_for_once(tmp_path):
    model = Model([["wrong", "right"], ["wrong 2", "right"]])
    session = Repairing(tmp_path, model, 1)
    targets = [target(name) for name in "ABCDEFGH"]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda on: repaired(session, model, on), targets))
    assert all(said(outcomes) == ["right", "right"] for outcomes in found)
    asked = [each for batch in model.asked for each in batch]
    assert sorted(asked) == [(on.name, index, 1) for on in targets for index in (0, 1)]


def test_a_model_on_the_gpu_writes_while_nobody_judges_and_leaves(tmp_path):
    events = []
    model = Model([["wrong", "right"]], on_gpu=True)
    session = Repairing(tmp_path, model, 1)
    begun = threading.Event()

    def judging():
        with session._turns.judging():
            begun.set()
            with pytest.raises(threading.BrokenBarrierError):
                together.wait(0.2)  # nobody writes meanwhile
            events.append("judged")

    together = threading.Barrier(2)
    answer = model.repair

    def writing(asked):
        events.append("written")
        yield from answer(asked)

    model.repair = writing
    thread = threading.Thread(target=judging)
    thread.start()
    begun.wait()
    assert said(repaired(session, model, A)) == ["right"]
    thread.join()
    assert events == ["judged", "written"]
    assert model.released == 1


def test_rounds_are_in_the_report_and_all_answers_are_paid_for(tmp_path):
    model = Model([["wrong", "right"], ["right"]])
    outcomes = repair(tmp_path, model, 1)
    report = build_report(ENVIRONMENT, outcomes, {})
    [candidates] = [each.candidates for each in Report.from_json(report.to_json()).targets]
    assert [[r.verdict.verdict for r in c.rounds] for c in candidates] == [["rejected", "accepted"], []]
    for found in (outcomes, candidates):
        [only] = spent(found)
        assert (only.answers, only.tokens, only.cost) == (3, 30, 1.5)
    assert repairs(outcomes) == "1 answer sent back with the verdict: 0 right at first, 1 after 1 repair."
