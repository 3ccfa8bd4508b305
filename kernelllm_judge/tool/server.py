"""An MCP server on standard input and output, with the tools ``judge``, ``explain`` and ``rank``."""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from kernelllm_runtime import __version__

if TYPE_CHECKING:
    from kernelllm_judge.tool.warm import Judged, WarmJudge

INSTRUCTIONS = (
    "Judges Triton kernels for PyTorch modules. Only `accepted` means that a kernel is right. Where one is rejected, "
    "change the kernel, never the reference, a tolerance or a check."
)

ORDER = ("accepted", "inconclusive", "rejected")


def serve(
    device: Literal["auto", "cpu", "cuda"], arch: str, deadline: float, isolation: Literal["best", "strict"]
) -> None:
    """Serves until the client closes standard input. What else prints goes to standard error.

    The judge is opened at the first call, as ``WarmJudge`` says: importing torch takes seconds, and the client waits for a
    greeting.
    """

    def make() -> WarmJudge:
        from kernelllm_judge.tool.warm import WarmJudge

        return WarmJudge(device, arch, deadline, isolation)

    with ThreadPoolExecutor(1, "kernelllm-judge") as thread, tempfile.TemporaryDirectory() as folder:
        tools = _Tools(make, thread, Path(folder))
        server: MCPServer[Any] = MCPServer("kernelllm-judge", instructions=INSTRUCTIONS, version=__version__)
        for tool in (tools.judge, tools.explain, tools.rank):
            server.add_tool(tool)
        try:
            server.run("stdio")
        finally:
            thread.submit(tools.close).result()


class _Tools:
    """The tools. An assistant reads their docstrings."""

    def __init__(self, make: Callable[[], WarmJudge], thread: ThreadPoolExecutor, folder: Path) -> None:
        """``thread`` does all judging: PyTorch's state and the judge's processes belong to it."""
        self._make, self._thread, self._folder = make, thread, folder
        self._warm: WarmJudge | None = None
        self._last: Judged | None = None
        self._numbers = itertools.count(1)

    def close(self) -> None:
        """Ends the judge; to be called in its thread."""
        if self._warm is not None:
            self._warm.__exit__(None, None, None)

    def judge(
        self,
        reference: str,
        candidate: str,
        timing: bool = True,
        min_speedup: float = 0.0,
        reproducer: str = "",
    ) -> dict[str, Any]:
        """Decides whether a Triton kernel may replace a PyTorch module: correctness, memory, cheating, speed.

        Args:
            reference: path of a file in KernelBench's form (Model, get_inputs, get_init_inputs), file.py::Class with a
                marked class, or a folder in GPU MODE's form (task.yml, reference.py).
            candidate: path or text of a kernel module (Triton kernels and forward(self, ...)), or of an answer with ModelNew.
            timing: whether to measure speed, where there is a GPU.
            min_speedup: reject below this speedup over eager; 0 only reports it.
            reproducer: path of the script to write where a plain call shows that the candidate is wrong; by default in a
                folder of this server's.

        Returns:
            The verdict with rule, reason, checks, certificate (addresses) and timing; the kernel module if it was accepted;
            the reproducer's path and text, or why there is none.
        """
        file = Path(reproducer or self._folder / f"reproducer_{next(self._numbers)}.py")
        judged = self._judged(reference, candidate, timing, min_speedup, file)
        script = judged.reproducer.read_text(encoding="utf-8") if judged.reproducer else ""
        kernel = judged.source if judged.verdict.accepted else ""
        return {**judged.to_json(), "script": script, "note": judged.note, "kernel": kernel}

    def explain(self, verdict: dict[str, Any] | None = None) -> str:
        """Says in plain words what a verdict means: the rule, what it protects from, and what to do.

        Args:
            verdict: what the tool judge returned, or the JSON of kernelllm-judge --json; the last verdict if left out.
        """
        return self._thread.submit(self._explained, verdict).result()

    def rank(self, reference: str, candidates: list[str], timing: bool = True) -> dict[str, Any]:
        """Judges several candidates for one reference, and orders them: accepted ones by speedup, then the others.

        Args:
            reference: as for the tool judge.
            candidates: paths or texts, as for the tool judge.
            timing: whether to measure speed; without a GPU, candidates are ordered by their verdicts only.
        """
        found: list[dict[str, Any]] = []
        for number, candidate in enumerate(candidates):
            verdict = self._judged(reference, candidate, timing, 0.0, None).verdict
            speed = verdict.speedup.value if verdict.speedup else None
            place = {"number": number, "candidate": "" if "\n" in candidate else candidate, "speedup": speed}
            found.append(place | {name: getattr(verdict, name) for name in ("verdict", "rule", "reason")})
        found.sort(key=lambda each: (ORDER.index(each["verdict"]), -(each["speedup"] or 0.0)))
        return {"ranking": found}

    def _judged(
        self, reference: str, candidate: str, timing: bool, min_speedup: float, reproducer: Path | None
    ) -> Judged:
        def judge() -> Judged:
            from kernelllm_judge.candidate import Speed
            from kernelllm_judge.tool.warm import Unjudged

            try:
                # The MCP package keeps file descriptor 1 from the protocol while it serves; what lies in Python's buffer
                # would come out later.
                with contextlib.redirect_stdout(sys.stderr):
                    self._warm = self._warm or self._make().__enter__()
                    self._last = self._warm.judge(
                        reference, candidate, Speed(timing, min_speedup), reproducer
                    )
            except Unjudged as why:
                raise ToolError(str(why)) from None
            return self._last

        return self._thread.submit(judge).result()

    def _explained(self, verdict: dict[str, Any] | None) -> str:
        from kernelllm_judge.core.records import Verdict
        from kernelllm_judge.tool.explain import explain
        from kernelllm_runtime.record import RecordError, SchemaError

        if verdict is None:
            if self._last is None:
                raise ToolError("There is no verdict yet; call judge first.")
            return explain(self._last.verdict)
        known = {each.name for each in fields(Verdict)}
        try:
            return explain(Verdict.from_json({name: part for name, part in verdict.items() if name in known}))
        except (RecordError, SchemaError) as error:
            raise ToolError(f"That is no verdict: {error}.") from None
