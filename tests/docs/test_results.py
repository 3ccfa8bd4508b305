"""``benchmarks/RESULTS.md``: what the recorded runs say, and no more than a reader takes in."""

import json
from dataclasses import asdict

from benchmarks import __main__ as benchmarks, results
from benchmarks.rows import RESULTS, Row, less, over_rounds, write


def test_the_page_is_made_of_the_recorded_runs_and_short():
    text = results.PAGE.read_text(encoding="utf-8")
    assert text == results.page(RESULTS), "run `python -m benchmarks results`"
    assert len(text.splitlines()) <= 300


def test_a_run_becomes_a_section_with_its_command_and_its_ratios(tmp_path):
    rows = [
        less("two norms", "torch.compile", 40.0, 20.0, "s"),
        over_rounds("a | b", "eager", [2.0, 2.2, 2.0, 2.1, 2.0], [1.0, 1.0, 1.0, 1.1, 1.0], "ms"),
        Row("alone", "", None, 3.5, "µs", note="no peer"),
    ]
    file = write(tmp_path, "start", rows, 12.3, ["--search", "0"])
    assert [Row(**row) for row in json.loads(file.read_text())["rows"]] == rows
    page = results.page(tmp_path)
    assert "## A cold start" in page and "`python -m benchmarks start --search 0`" in page
    assert "| two norms | 20 s | torch.compile | 40 s | 2.00 |  |" in page
    assert (
        "| a \\| b | 1 ms | eager | 2 ms | 2.02 [1.89, 2.15] |" in page
        and "| alone | 3.5 µs | – | – | – | no peer |" in page
    )


def test_a_section_shows_the_first_rows_and_the_mean_of_all(tmp_path):
    rows = [asdict(less(f"problem {n}", "torch.compile", 2.0, 1.0, "ms")) for n in range(100)]
    write(tmp_path, "kernelbench", [Row(**row) for row in rows], 1.0, [])
    page = results.page(tmp_path)
    assert page.count("| problem ") == results.MOST_ROWS
    assert "Geometric means: 2.00 of torch.compile (100 figures)." in page


def test_every_name_is_a_module_that_says_how_it_is_run():
    folder = results.PAGE.parent
    for name in benchmarks.NAMES:
        assert f"python -m benchmarks {name}" in (folder / f"{name}.py").read_text(), name
        assert name in benchmarks.SECONDS
    assert benchmarks.main(["nothing of that name"]) == 2
