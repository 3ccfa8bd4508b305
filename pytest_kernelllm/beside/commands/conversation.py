"""``kernelllm repl``: paste a module, watch the answer as it is generated, judge it, save it.

An input is a command (``:help`` lists them), a PyTorch module (Python that defines a class ``Model``), which is put
into the prompt, or any other text, which is the prompt.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kernelllm_judge.render.extract import ExtractError, extract
from pytest_kernelllm.beside.verify.pairs import Pair, VerifyError, verify_all
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.models.kernelllm import KernelLLM
from pytest_kernelllm.models.protocol import Answer

HELP = """\
:k N             answers to each following prompt (a single one is shown as it is generated)
:seed N          seed of the following answers
:verify          judge the last answers against the module in their prompt
:save FILE       write the last answer's code; with several answers FILE_0, FILE_1…
:show            the last prompt
:help  :quit
An empty line ends an input. Ctrl-C stops an answer, Ctrl-D ends the program."""


@dataclass(frozen=True)
class Exchange:
    """The last prompt that was answered, and its answers."""

    prompt: str = ""
    module: str = ""
    """The PyTorch module in the prompt; empty if the prompt has none."""
    texts: tuple[str, ...] = ()


class Repl:
    """The conversation: ``handle`` takes one input after another and writes to ``out``."""

    def __init__(self, llm: KernelLLM, settings: Settings, out: TextIO) -> None:
        """``llm`` answers; ``settings`` configure ``:verify`` and the first seed."""
        self._llm = llm
        self._settings = settings
        self._samples = 1
        self._seed = settings.seed
        self._out = out
        self._prompt = ""
        """The last prompt, answered or not."""
        self._last = Exchange()

    def handle(self, text: str) -> bool:
        """Handles one input and returns whether to continue. Errors are reported; Ctrl-C ends only the current input."""
        try:
            if text.startswith(":"):
                return self._command(*text[1:].split(maxsplit=1))
            if text.strip():
                self._ask(text)
        except (GenerateError, VerifyError, ExtractError, OSError) as error:
            self._say(f"{error}")
        except KeyboardInterrupt:
            self._say("\nstopped")
        return True

    # ------------------------------------------------------------------ asking

    def _ask(self, text: str) -> None:
        module = text if _is_module(text) else ""
        prompt = self._llm.prompt(module) if module else text
        self._prompt = prompt
        texts: list[str] = []
        try:
            if self._samples == 1:
                self._stream(prompt, texts)
            else:
                for answer in self._llm.answers(prompt, self._samples, seed=self._seed):
                    self._show(answer)
                    if answer.finish != "failed":
                        texts.append(answer.text)
        finally:  # answers from before Ctrl-C can be saved and judged; without any, those before stay
            if texts:
                self._last = Exchange(prompt, module, tuple(texts))

    def _stream(self, prompt: str, texts: list[str]) -> None:
        """Shows one answer as it is written, and adds it to ``texts`` unless it fails."""
        pieces: list[str] = []
        try:
            for piece in self._llm.stream_raw(prompt, seed=self._seed):
                pieces.append(piece)
                print(piece, end="", file=self._out, flush=True)
            self._say("")
        except GenerateError:
            pieces.clear()
            raise
        finally:
            if pieces:
                texts.append("".join(pieces))

    def _show(self, answer: Answer) -> None:
        note = f", {answer.note}" if answer.note else ""
        self._say(f"# ---- answer {answer.index}: {answer.tokens} tokens{note}\n{answer.text}")

    # ------------------------------------------------------------------ commands

    def _command(self, name: str = "help", argument: str = "") -> bool:
        commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._say(HELP),
            "k": self._set_samples,
            "seed": self._set_seed,
            "verify": self._verify,
            "save": self._save,
            "show": lambda _: self._say(self._prompt or "there is no prompt yet"),
        }
        if name in ("quit", "q", "exit"):
            return False
        if name in commands:
            commands[name](argument.strip())
        else:
            self._say(f"there is no command :{name}; :help lists them")
        return True

    def _set_samples(self, argument: str) -> None:
        if not argument.isdecimal() or int(argument) < 1:
            self._say(":k takes a number of at least 1, as in `:k 5`")
            return
        self._samples = int(argument)
        self._say(
            f"{self._samples} answers to each prompt"
            if self._samples > 1
            else "one answer, shown as it is generated"
        )

    def _set_seed(self, argument: str) -> None:
        if not argument.isdecimal():
            self._say(":seed takes a number, as in `:seed 7`")
            return
        self._seed = int(argument)
        self._say(f"seed {self._seed}")

    def _verify(self, argument: str) -> None:
        if not self._last.texts:
            self._say("there is no answer to judge yet")
        elif not self._last.module:
            self._say(
                "the last prompt contains no module with a class Model, so there is no reference to judge against"
            )
        else:
            with tempfile.TemporaryDirectory(prefix="kernelllm-repl-") as folder:
                self._judge(Path(folder))

    def _judge(self, folder: Path) -> None:
        reference = folder / "reference.py"
        reference.write_text(self._last.module, encoding="utf-8")
        pairs = []
        for index, text in enumerate(self._last.texts):
            candidate = folder / f"answer_{index}.txt"
            candidate.write_text(text, encoding="utf-8")
            pairs.append(Pair(f"answer {index}", str(reference), candidate))
        verify_all(pairs, self._settings, lambda judged: self._say(judged.in_words()))

    def _save(self, argument: str) -> None:
        if not argument or not self._last.texts:
            self._say(
                ":save takes a file's name, once there is an answer"
                if not argument
                else "there is no answer yet"
            )
            return
        path = Path(argument).expanduser()
        for index, text in enumerate(self._last.texts):
            several = len(self._last.texts) > 1
            target = path.with_name(f"{path.stem}_{index}{path.suffix}") if several else path
            try:
                target.write_text(extract(text), encoding="utf-8")
                self._say(f"wrote {target}")
            except ExtractError as error:
                self._say(f"answer {index} was not saved: {error}")

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def _is_module(text: str) -> bool:
    """Whether a text is Python that defines a class ``Model``."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in body)


def converse(repl: Repl, inputs: Iterable[str]) -> None:
    """Handles inputs until one of them ends the conversation, or there are no more."""
    for text in inputs:
        if not repl.handle(text):
            return


def terminal_inputs(history: Path) -> Iterator[str]:
    """Yields what is typed: several lines up to an empty one, or a command. The history is kept in a file.

    Raises:
        GenerateError: prompt_toolkit is not installed.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    except ImportError:
        raise GenerateError(
            "`kernelllm repl` needs prompt_toolkit: pip install 'pytest-kernelllm[repl]'."
        ) from None
    history.parent.mkdir(parents=True, exist_ok=True)
    keys = KeyBindings()
    session: PromptSession[str] = PromptSession(
        multiline=True, key_bindings=keys, history=FileHistory(str(history))
    )

    @Condition
    def complete() -> bool:
        text = session.default_buffer.document.text
        # A new line begins with the indentation of the one before.
        return text.startswith(":") or not text.rpartition("\n")[2].strip()

    @keys.add("enter", filter=complete)
    def submit(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    while True:
        try:
            yield session.prompt("kernelllm> ", prompt_continuation="        … ").rstrip()
        except KeyboardInterrupt:
            continue  # drops the line, as shells do
        except EOFError:
            return


def piped_inputs(lines: Iterable[str]) -> Iterator[str]:
    """Yields inputs from a pipe: a command is a line of its own and ends the input before it."""
    text = ""
    for line in lines:
        if line.startswith(":"):
            if text.strip():
                yield text
            yield line.strip()
            text = ""
        else:
            text += line
    if text.strip():
        yield text
