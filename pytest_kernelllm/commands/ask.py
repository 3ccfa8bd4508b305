"""Asks about suggestions one by one: shows the change, its measurements, and a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from pytest_kernelllm.commands.common import OK
from pytest_kernelllm.commands.project import ProjectContext
from pytest_kernelllm.suggest.edit import EditError
from pytest_kernelllm.suggest.figures import figures
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.offers import Offer, adoption, known_targets
from pytest_kernelllm.suggest.patch import Suggestion, apply, suggestion
from pytest_kernelllm.suggest.style import Style

QUESTION = "apply? [y]es [n]o [d]iff again [a]ll [q]uit: "

_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}


def ask_for_each(
    project: ProjectContext,
    found: Sequence[Offer],
    answer: Callable[[str], str] = input,
    console: Console | None = None,
) -> int:
    """Shows each suggestion, asks, and applies it at once if the user agrees.

    Args:
        project: the project to change.
        found: the suggestions.
        answer: shows the question and returns what was typed; ``EOFError`` counts as ``q``.
        console: for the output.

    Returns:
        The exit code: 0, or 130 after Ctrl-C.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    root, style = project.root, Style(project.root)
    targets = known_targets(root, [offer.record for offer in found])
    applied: list[str] = []
    code, everything = OK, False
    try:
        for number, offer in enumerate(found, 1):
            try:
                chosen = adoption(root, offer.record, targets) if offer.record else None
                change = suggestion(root, *chosen, targets, project.kernels, style) if chosen else None
                if offer.record and change is None:
                    console.print(f"{offer.name} is adopted already", markup=False)
                    continue
                console.print(Text(f"{number} of {len(found)}: {offer.name}", style="bold"))
                lines = _lines(offer, change)
                console.print(*lines, sep="\n")
                reply = "y" if everything else _reply(console, lines, answer)
                if reply == "q":
                    break
                everything = everything or reply == "a"
                if reply in "ya":
                    apply(root, change or offer.path)
                    applied.append(offer.name)
                    console.print(f"applied {offer.name}", markup=False)
            except (PatchError, EditError) as error:
                console.print(f"kernelllm: {error}", markup=False)
    except EOFError:
        console.print()
    except KeyboardInterrupt:
        console.print()
        code = 130
    names = f": {', '.join(applied)}" if applied else ""
    console.print(*(f"kernelllm: {note}\n" for note in style.notes), sep="", end="", markup=False)
    console.print(f"{len(applied)} of {len(found)} applied{names}", markup=False)
    return code


def _reply(console: Console, lines: Sequence[Text], answer: Callable[[str], str]) -> str:
    """Asks until the reply is one of ``y``, ``n``, ``a``, ``q``."""
    while True:
        reply = answer(QUESTION).strip().lower()[:1]
        if reply and reply in "ynaq":
            return reply
        if reply == "d":
            console.print(*lines, sep="\n")


def _lines(offer: Offer, change: Suggestion | None) -> list[Text]:
    """The diff, and what the judge measured."""
    patch = offer.path.read_bytes() if change is None else change.patch
    diff = patch.decode(errors="replace").removesuffix("\n").split("\n")
    lines = [Text(_visible(line), style=_STYLES.get(line[:1], "")) for line in diff]
    if offer.record is None:
        return [*lines, Text("no measurements: the verdict behind this patch is not in the store")]
    found = figures(offer.record.verdict)
    lines += [Text(_visible(f"{key}: {text}")) for key, text in found.items()]
    return lines if "speedup" in found else [*lines, Text("speedup: not measured")]


def _visible(line: str) -> str:
    """The line without control characters."""
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in line.removesuffix("\r"))
