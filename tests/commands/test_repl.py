"""``kernelllm repl``: what is typed, what is shown, and what Ctrl-C ends."""

import io
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from projects import ANSWER, COMMAND, PROBLEM
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from random_llama import save
from serving import Scripted

from pytest_kernelllm import KernelLLM
from pytest_kernelllm.beside.commands.conversation import Repl, converse, piped_inputs, terminal_inputs
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.models.endpoint.wire import seed_of
from pytest_kernelllm.models.protocol import Sampling

pytestmark = pytest.mark.slow

SAID = f"Sure.\n```python\n{ANSWER}```\n"
WRONG = SAID.replace("+ 1)", "+ 2)")


@pytest.fixture
def server():
    def write(prompt, seed, choice):
        if "class Model(" not in prompt:
            return f"you said {prompt}"
        return WRONG if seed == seed_of(Sampling(), 1) else SAID

    server = Scripted(write=write, context=1 << 17)
    yield server
    server.close()


@pytest.fixture
def talk(server):
    """A conversation: everything typed, and what was shown for it."""

    def talk(*inputs):
        out = io.StringIO()
        with KernelLLM(endpoint=server.url) as llm:
            converse(Repl(llm, Settings(device="cpu"), out), inputs)
        return out.getvalue()

    return talk


def test_plain_text_is_the_prompt_itself(talk):
    assert talk("what a day") == "you said what a day\n"


def test_a_module_is_put_into_the_prompt(talk):
    shown = talk(PROBLEM, ":show")
    assert SAID in shown
    assert "You are given the following architecture" in shown
    assert PROBLEM in shown


def test_answers_are_judged_against_the_module_they_were_written_for(talk):
    shown = talk(":k 2", PROBLEM, ":verify")
    assert "answer 0: accepted" in shown
    assert "answer 1: rejected: output 0" in shown


def test_there_is_nothing_to_judge_without_a_module_or_an_answer(talk):
    assert "no answer to judge yet" in talk(":verify")
    assert "no reference to judge against" in talk("hello", ":verify")


def test_code_is_saved_each_answer_in_its_file(talk, tmp_path):
    shown = talk(PROBLEM, f":save {tmp_path}/kernel.py", ":k 2", PROBLEM, f":save {tmp_path}/kernels.py")
    assert (tmp_path / "kernel.py").read_text().strip() == ANSWER.strip()
    assert (tmp_path / "kernels_0.py").read_text().strip() == ANSWER.strip()
    assert "+ 2)" in (tmp_path / "kernels_1.py").read_text()
    assert f"wrote {tmp_path}/kernel.py" in shown
    assert "was not saved: " in talk("hello", f":save {tmp_path}/none.py")
    assert not (tmp_path / "none.py").exists()


def test_wrong_use_is_told_and_changes_nothing(talk):
    shown = talk(":k many", ":seed x", ":dance", ":save", ":save x.py", ":", "hello")
    for part in (
        ":k takes a number",
        ":seed takes a number",
        "no command :dance",
        ":save takes",
        "no answer yet",
    ):
        assert part in shown
    assert ":verify" in shown
    assert shown.endswith("you said hello\n")


def test_a_server_that_fails_ends_nothing(talk, server):
    server.refuse = lambda seen: (401, {"error": "no"}) if seen.method == "POST" else None
    shown = talk("hello", ":show")
    assert "401" in shown or "token" in shown
    assert shown.endswith("hello\n")


def test_a_prompt_that_fails_leaves_the_answer_before_it(talk, server, tmp_path):
    server.refuse = lambda seen: (
        (401, {"error": "no"}) if seen.method == "POST" and "fails" in str(seen.body) else None
    )
    shown = talk(PROBLEM, "this fails", f":save {tmp_path}/kept.py", ":k 2", "this fails", ":verify", ":show")
    assert "HF_TOKEN" in shown or "token" in shown
    assert (tmp_path / "kept.py").read_text().strip() == ANSWER.strip()
    assert "answer 0: accepted" in shown
    assert shown.endswith("this fails\n")


def test_quit_ends_it(talk):
    assert "you said" not in talk(":quit", "hello")


def test_through_a_pipe_commands_are_lines_of_their_own():
    lines = io.StringIO("class Model:\n\n    pass\n:k 2\nhello\n")
    assert list(piped_inputs(lines)) == ["class Model:\n\n    pass\n", ":k 2", "hello\n"]


def test_what_is_pasted_ends_with_an_empty_line_and_a_command_at_once(tmp_path):
    pasted = "\x1b[200~def f():\n\n    return 1\x1b[201~"
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(pasted + "\r\r:k 3\r")
        inputs = terminal_inputs(tmp_path / "state" / "history")
        assert next(inputs) == "def f():\n\n    return 1"
        assert next(inputs) == ":k 3"
        keys.send_text("half a li\x03:quit\r\x04")  # Ctrl-C forgets the line, Ctrl-D ends
        assert next(inputs) == ":quit"
        assert next(inputs, None) is None
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\x1b[A\r")  # the arrow up
        assert next(terminal_inputs(tmp_path / "state" / "history")) == ":quit"


def test_ctrl_c_stops_an_answer_and_not_the_program(tmp_path):
    model = save(tmp_path / "model", max_position_embeddings=1024)
    (model / "generation_config.json").write_text("{}")  # so that no token ends the text…
    config = json.loads((model / "config.json").read_text())  # …and its length does not for a long time
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 15}))
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    command = [*COMMAND, "repl", "--model", str(model), "--max-new-tokens", "30000"]
    program = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    shown = b""

    def until(condition, seconds=240):
        nonlocal shown
        end = time.monotonic() + seconds
        while not condition(shown):
            assert time.monotonic() < end, shown.decode(errors="replace")
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536)

    try:
        until(lambda text: b"kernelllm>" in text)
        os.write(ours, b"import torch\r\r")
        # The model writes noise; some of it shows that it is at work.
        until(lambda text: len(text.rpartition(b"import torch")[2]) > 200)
        program.send_signal(signal.SIGINT)
        until(lambda text: b"stopped" in text)
        before = shown.count(b"kernelllm>")
        until(lambda text: text.count(b"kernelllm>") > before or text.rstrip().endswith(b">"))
        os.write(ours, b":quit\r")
        assert program.wait(30) == 0
    finally:
        program.kill()
        program.wait()
        os.close(ours)
        os.close(theirs)
