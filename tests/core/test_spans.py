"""What processes did, and when."""

import os
import threading
import time

import pytest

from kernelllm_judge.core import spans
from kernelllm_judge.core.spans import JUDGING, Recorder, process_started
from kernelllm_judge.findings import Durations


def kinds(recorder):
    return [span.what for span in recorder.spans]


def test_parts_of_a_verdict_are_spans_inside_each_other_with_its_target():
    recorder = Recorder("judge 1")
    durations = Durations(recorder, "a.py::A")
    with pytest.raises(ValueError, match="x"), durations.part("outer"), durations.part("inner"):
        time.sleep(2 * spans.SHORTEST)
        raise ValueError("x")
    inner, outer = recorder.spans
    assert (inner.what, outer.what) == ("inner", "outer")
    assert outer.begin <= inner.begin <= inner.end <= outer.end
    assert (outer.process, outer.thread, outer.target) == ("judge 1", "MainThread", "a.py::A")
    assert not recorder.doing


def test_what_runs_beside_has_a_thread_of_its_own():
    recorder = Recorder("judge 1")
    beside = Durations(recorder, "a.py::A").beside()

    def work():
        with beside.part("compiling"):
            time.sleep(2 * spans.SHORTEST)

    thread = threading.Thread(target=work, name="beside")
    thread.start()
    thread.join()
    [span] = recorder.spans
    assert (span.thread, span.target) == ("beside", "a.py::A")


def test_equal_spans_without_a_gap_are_one_and_short_ones_are_left_out():
    recorder = Recorder("judge 1")
    for begin in (1.0, 1.004, 1.008):
        recorder.add("checks", "a.py::A", begin, begin + 0.004)
    recorder.add("calls", "a.py::A", 1.012, 1.016)
    recorder.add(JUDGING, "a.py::A", 1.0, 1.005)
    assert [(span.what, span.begin, span.end) for span in recorder.spans] == [
        ("checks", 1.0, 1.012),
        (JUDGING, 1.0, 1.005),
    ]


def test_each_span_is_taken_once():
    recorder = Recorder("judge 1")
    recorder.add("calls", "", 1.0, 2.0)
    assert len(recorder.take()) == 1
    assert not recorder.take()


def test_where_no_details_are_wanted_whole_verdicts_are_kept_and_what_is_done_is_known():
    recorder = Recorder("pytest", detailed=False)
    with recorder.span("being written", "a.py::A"):
        assert recorder.doing == [("being written", "a.py::A")]
        time.sleep(2 * spans.SHORTEST)
    recorder.extend([spans.Span("judge 1", "MainThread", what, "", 1.0, 2.0) for what in (JUDGING, "calls")])
    assert kinds(recorder) == [JUDGING]


def test_without_a_name_nothing_is_recorded():
    recorder = Recorder()
    with recorder.span("calls"):
        assert not recorder.doing
        time.sleep(2 * spans.SHORTEST)
    assert not recorder.spans


def test_the_start_of_a_process_is_before_what_it_does():
    started = process_started()
    assert time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) < started < time.time()
    child = os.fork()
    if not child:
        os._exit(process_started() < started)
    assert os.waitpid(child, 0)[1] == 0
