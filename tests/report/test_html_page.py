"""The HTML page as a text: what each kind of run shows, and that it is made from the stored report alone."""

import json
import re
import sys
from dataclasses import replace

import pages
import pytest
from jsonschema import validate

from pytest_kernelllm.cli import main
from pytest_kernelllm.report.html.code import difference, highlighted, visible, wrong_line
from pytest_kernelllm.report.html.page import render_page, write_page
from pytest_kernelllm.report.html.view import view
from pytest_kernelllm.report.json import write_report
from pytest_kernelllm.report.read import read_report
from pytest_kernelllm.report.schema import report_schema


def text_of(page):
    """What a reader sees, without markup."""
    body = re.sub(r"<(style|script)>.*?</\1>", " ", page[page.index("<body") :], flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_a_stored_report_gives_the_same_page(tmp_path):
    report = pages.everything()
    write_report(tmp_path / "report.json", report)
    validate(json.loads((tmp_path / "report.json").read_text()), report_schema())
    write_page(tmp_path / "now.html", report)
    assert main(["report", str(tmp_path / "report.json"), "--html", str(tmp_path / "out" / "page.html")]) == 0
    assert (tmp_path / "out" / "page.html").read_bytes() == (tmp_path / "now.html").read_bytes()


def test_a_report_of_an_earlier_version_gives_a_page(tmp_path):
    data = pages.everything().to_json()
    for name in ("created", "stopped"):
        del data[name]
    for target in data["targets"]:
        del target["original"], target["stale"]
        for candidate in target["candidates"]:
            del candidate["source"]
    page = text_of(render_page(read_report(json.dumps(data).encode())))
    assert "The class's text was not found" in page and "inductor-0" in page


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read (No such file"), (b"{}", "is not a report:"), (b"\xff", "is not a report:")],
)
def test_a_file_that_is_no_report_is_one_sentence(tmp_path, capsys, content, problem):
    if content is not None:
        (tmp_path / "report.json").write_bytes(content)
    assert main(["report", str(tmp_path / "report.json"), "--html", str(tmp_path / "page.html")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert problem in line and not (tmp_path / "page.html").exists()


def test_a_folder_in_place_of_the_page_is_one_sentence(tmp_path, capsys):
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(tmp_path / "report.json"), "--html", str(tmp_path)])
    assert "is a folder; name a file" in capsys.readouterr().err


def test_a_missing_package_is_an_error_before_anything_runs(pytester, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = pytester.runpytest_inprocess("--kernelllm", "--kernelllm-html=page.html")
    result.stderr.fnmatch_lines(
        "ERROR: The HTML report needs jinja2; run `pip install 'pytest-kernelllm[[]html[]]'`."
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_each_kind_of_result_has_its_word():
    results = {t.reported.target.name: (t.state, t.result) for t in view(pages.everything()).targets}
    assert results == {
        "Scale": ("good", "patch"),
        "RMSNorm": ("good", "adopted"),
        "Slower": ("bad", "slower than recorded"),
        "Stale": ("bad", "adopted kernel is stale"),
        "Slow": ("bad", "too slow"),
        "Wrong": ("bad", "rejected"),
        "Open": ("open", "inconclusive"),
        "Nothing": ("none", "no candidate"),
    }


def test_a_timed_run_shows_its_figures():
    page = text_of(render_page(pages.everything()))
    for text in (
        "Some GPU, driver 570.86",
        "6.23× 5.91 to 6.47",  # over both cases
        "7.60× 7.22 to 7.90",
        "0.40× 0.38 to 0.42",
        "3e-07 / 2e-06",
        "git apply .kernelllm/patches/src.layers.Scale.patch",
        "Go to line 12",
        "the server is down",
    ):
        assert text in page, text


def test_recorded_runs_are_shown_newest_first_and_only_where_there_are_any():
    page = text_of(render_page(pages.everything()))
    assert page.count("3 runs") == 2
    assert "slower than recorded: 7.60x -&gt; 5.80x since torch 2.11.0 -&gt; 2.13.0" in page
    assert page.index("this one 2026-01-03 5.80×") < page.index("2026-01-01-run 2026-01-01 7.60×")
    bare = pages.everything()
    bare = replace(bare, targets=tuple(replace(each, history=None) for each in bare.targets))
    assert "history" not in text_of(render_page(bare)).lower()


def test_without_a_gpu_the_page_says_so_and_shows_no_speeds():
    right = pages.candidate(0, pages.KERNEL, pages.verdict())
    page = text_of(render_page(pages.report(pages.target("Scale", right, best=right))))
    assert "Without a GPU no speed was measured" in page and "verified" in page
    assert "speedup over eager" not in page and "Roofline" not in page


def test_reasons_are_whole_and_take_the_room_of_speed_where_nothing_was_timed():
    why = "output 0 is wrong at [0, 0], " + "and at one more place besides, " * 9 + "which ends here"
    wrong = pages.candidate(0, pages.KERNEL, pages.verdict("rejected", why, "values"))
    page = render_page(
        replace(pages.everything(), environment=pages.CPU, targets=(pages.target("A", wrong),))
    )
    assert f'<span class="reason">{why}</span>' in page
    assert '<table class="modules untimed"' in page and "over torch.compile" not in text_of(page)


def test_all_rejected_is_a_page_of_reasons():
    wrong = pages.verdict("rejected", "output 0 is wrong at [3, 17]", "values")
    shown = pages.target(
        "Scale", *(pages.candidate(i, pages.KERNEL + f"\nN = {i}\n", wrong) for i in range(3))
    )
    page = text_of(render_page(pages.report(shown)))
    assert "rejected 3" in page and "values 3" in page and "output 0 is wrong at [3, 17]" in page
    assert "Difference from the suggestion" not in page


def test_an_empty_run_says_what_to_do():
    page = text_of(render_page(pages.report()))
    assert "No module was tested" in page and "@triton_candidate" in page


@pytest.mark.parametrize("targets", [0, 1])
def test_an_interrupted_run_says_so(targets):
    right = pages.candidate(0, pages.KERNEL, pages.verdict())
    shown = [pages.target("Scale", right, best=right)] * targets
    page = text_of(render_page(pages.report(*shown, stopped="interrupted")))
    assert "The run was stopped (interrupted)" in page
    assert ("Nothing was judged" in page) == (targets == 0)


def test_numbers_that_are_not_finite_and_ratios_of_nothing_give_a_page():
    odd = pages.timing("odd", 1e-300, 1e300)
    odd = replace(odd, roofline_share=0.0, speedup=replace(odd.speedup, high=float("inf"), low=0.0))
    right = pages.candidate(0, pages.KERNEL, pages.verdict(environment=pages.GPU, timings=[odd]))
    page = render_page(pages.report(pages.target("Odd", right, best=right), environment=pages.GPU))
    for style in re.findall(r'style="(?:left|width)[^"]*"', page):
        assert all(0 <= float(number) <= 100 for number in re.findall(r"(-?[\d.]+)%", style)), style


def test_source_is_escaped_line_by_line_and_the_wrong_line_is_marked():
    shown = str(highlighted('"""a\n<b>\n"""\nx = 1 < 2\n', first=7, marked=8, anchor="here"))
    lines = shown.split("\n</span>")
    assert len(lines) == 5 and lines[-1] == ""
    assert lines[1] == '<span class="l wrong" id="here"><span class="s">&lt;b&gt;</span>'
    assert lines[3].startswith('<span class="l">x ')


def test_a_difference_shows_both_sides():
    shown = str(difference("a\nb\nc\n", "a\n<d>\nc\n"))
    assert '<span class="l del">-b\n</span>' in shown and '<span class="l add">+&lt;d&gt;\n</span>' in shown
    assert difference("a\n", "a\n") == ""


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (pages.WRONG, 12),
        ("it fails at default: IndexError: line 3 of what it says (line 27)", 27),
        ("output 0 is wrong at [3, 17]", None),
    ],
)
def test_the_line_comes_from_the_reason(reason, line):
    assert wrong_line(pages.verdict("rejected", reason)) == line
    assert wrong_line(pages.verdict("inconclusive", reason)) is None


def test_what_nobody_sees_is_named():
    assert visible("a\u202eb\u0000") == "a⟨U+202E RIGHT-TO-LEFT OVERRIDE⟩b⟨U+0000⟩"
    assert visible("naïve\tπ\n") == "naïve\tπ\n"
