"""The timeline of a run, as a page and as a trace."""

import json
from html.parser import HTMLParser

import pytest

from kernelllm_judge.core.spans import JUDGING, Span
from pytest_kernelllm.report.timeline import lanes, page, trace

START = 1.7e9
EVIL = "a.py::<script>alert(1)</script>"


def span(process, what, begin, end, thread="MainThread", target="a.py::A"):
    return Span(process, thread, what, target, START + begin, START + end)


SPANS = [
    span("judge 1", "calls", 3, 4),
    span("judge 1", "checks", 4, 5.5),
    span("judge 1", JUDGING, 2, 6),
    span("judge 1", "importing torch", 1, 2, target=""),
    span("judge 1", "compiling", 2.5, 5, thread="beside"),
    span("judge 2", JUDGING, 2, 4, target=EVIL),
    span("pytest", "collecting", 0, 1, target=""),
    span("pytest", "writing suggestions", 8, 9, target=""),
]


def test_spans_lie_in_lanes_each_inside_those_around_it():
    found = {(lane.process, lane.thread): lane for lane in lanes(SPANS)}
    assert list(found) == [
        ("pytest", "MainThread"),
        ("judge 1", "MainThread"),
        ("judge 1", "beside"),
        ("judge 2", "MainThread"),
    ]
    lane = found["judge 1", "MainThread"]
    assert [(each.what, inside) for each, inside in lane.spans] == [
        ("importing torch", 0),
        (JUDGING, 0),
        ("calls", 1),
        ("checks", 1),
    ]
    assert lane.own_seconds == {"importing torch": 1, JUDGING: 1.5, "calls": 1, "checks": 1.5}


def test_the_trace_has_complete_events_in_microseconds_and_names():
    events = json.loads(trace(SPANS))["traceEvents"]
    names = {(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M"}
    assert ("process_name", "judge 1") in names and ("thread_name", "beside") in names
    complete = {(e["pid"], e["tid"], e["name"]): e for e in events if e["ph"] == "X"}
    assert len(complete) == len(SPANS)
    [calls] = [e for (_, _, name), e in complete.items() if name == "calls"]
    assert (calls["ts"], calls["dur"], calls["args"]) == (3_000_000, 1_000_000, {"target": "a.py::A"})
    # Perfetto takes the events of a thread for nested or apart.
    assert {e["tid"] for e in complete.values() if e["name"] in (JUDGING, "compiling")} == {2, 3, 4}


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows, self.tags, self.inside = [], [], False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        self.inside = tag == "td"

    def handle_data(self, data):
        if self.inside:
            self.rows[-1].append(data)
            self.inside = False


def test_the_page_says_where_the_seconds_were_and_how_idle_slots_were():
    cells = Cells()
    cells.feed(page(SPANS))
    assert "script" not in cells.tags and cells.tags.count("rect") == len(SPANS)
    assert [JUDGING, "judge", "3.50"] in cells.rows and ["checks", "judge", "1.50"] in cells.rows
    # From its beginning to the run's end: 8 s, of which it did something in 5 and judged for 4.
    assert ["judge 1", "8.00", "50 %", "38 %"] in cells.rows
    assert ["judge 2", "7.00", "29 %", "71 %"] in cells.rows


@pytest.mark.parametrize("spans", [[], [span("judge 1", JUDGING, 1, 1)]])
def test_runs_without_any_seconds_have_a_timeline(spans):
    assert "<svg" in page(spans)
    assert len(json.loads(trace(spans))["traceEvents"]) == 3 * len(spans)
