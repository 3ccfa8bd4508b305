"""Entries are edits: they are applied exactly, or refused in words that name the entry."""

import pytest

from corpus.edits import Edit, Texts, read_edits
from corpus.entries import load, read_subjects


def edit(*lines, base="plain"):
    return Edit("a__trick", base, {}, lines)


BASE = "a\n\nb\nc\nb\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), "a b c b"),
        (("-a", "+x", "+y"), "x y b c b"),
        ((" c", "+x"), "a b c x b"),
        (("-a", "@@", "-c"), "b b"),
        ((" c", "+x", "-b"), "a b c x"),
        (("-b", "-c"), "a b"),
    ],
)
def test_an_edit_is_applied(lines, expected):
    assert edit(*lines).apply(BASE).split() == expected.split()


@pytest.mark.parametrize("lines", [("-b",), ("-x",), (" c", "+x", "-a"), ("+x",), ("-a", "-c")])
def test_lines_that_are_missing_or_ambiguous_are_refused(lines):
    with pytest.raises(ValueError, match="a__trick: plain holds these lines"):
        edit(*lines).apply(BASE)


def test_a_whole_text_gets_the_imports_it_lacks():
    assert edit("+x = 1", base="nothing").apply("").splitlines()[-2:] == [
        "import triton.language as tl",
        "x = 1",
    ]
    assert edit("+import torch", base="nothing").apply("") == "import torch\n"


def test_an_edit_of_an_edit_is_applied_to_its_text(tmp_path):
    (tmp_path / "plain.py").write_text("a\nb\n")
    first, second = Edit("first", "plain", {}, ("-a", "+x")), Edit("second", "first", {}, ("-x", "+y"))
    texts = Texts([tmp_path / "plain.py"], [second, first])
    assert texts["second"] == "y\nb\n"
    with pytest.raises(ValueError, match="'third'"):
        texts["third"]


def entries_of(tmp_path, monkeypatch, text):
    for folder in ("honest", "cheats"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "cheats" / "some.diff").write_text(text)
    monkeypatch.setattr("corpus.entries.HERE", tmp_path)
    return load()


def test_an_entry_without_a_reason_or_a_subject_is_refused(tmp_path, monkeypatch):
    text = "=== softmax__x from nothing; family: sizes; rule: values\ntrick: It is wrong.\n+pass\n"
    [entry] = entries_of(tmp_path, monkeypatch, text)
    assert (entry.rules, entry.story, entry.kind) == (("values",), "It is wrong.", "cheat")
    for old, new in {
        "rule: values": "rule: none",
        "values": "values | sizes | stress | load",
        "; rule: values": "",
        "trick": "story",
        "softmax__x": "nobody__x",
    }.items():
        with pytest.raises(ValueError, match="__x"):
            entries_of(tmp_path, monkeypatch, text.replace(old, new))


@pytest.mark.parametrize("text", ["=== softmax__x\n+pass\n", "=== softmax__x from nothing\npass\n"])
def test_a_line_of_another_form_is_refused(tmp_path, text):
    (tmp_path / "some.diff").write_text(text)
    with pytest.raises(ValueError, match=r"some\.diff.*softmax__x"):
        read_edits(tmp_path / "some.diff")


def test_every_text_is_python():
    names = [entry.name for entry in load()]
    assert len(names) == len(set(names)) > 490
    subjects = read_subjects()
    for text in [
        *(entry.text for entry in load()),
        *(subjects[name] for name in (*subjects.files, *subjects.edits)),
    ]:
        compile(text, "<entry>", "exec")
