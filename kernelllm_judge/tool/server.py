"""An MCP server on standard input and output, with the tools ``judge``, ``explain`` and ``rank``."""

from __future__ import annotations

import contextlib
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

Device = Literal["auto", "cpu", "cuda"]
Isolating = Literal["best", "strict"]

INSTRUCTIONS = (
    "Judges Triton kernels for PyTorch modules. Only `accepted` means that a kernel is right. Where one is rejected, "
    "change the kernel, never the reference, a tolerance or a check."
)

ORDER = {"accepted": 0, "inconclusive": 1, "rejected": 2}


def serve(device: Device, arch: str, deadline: float, isolation: Isolating) -> None:
    """Serves until the client closes standard input. What else prints goes to standard error.

    The judge is opened at the first call, as ``WarmJudge`` says: importing torch takes seconds, and the client waits for a
    greeting.
    """

    def make() -> WarmJudge:
        from kernelllm_judge.tool.warm import WarmJudge

        return WarmJudge(device, arch, deadline, isolation)

    with ThreadPoolExecutor(1, "kernelllm-judge") as thread, tempfile.TemporaryDirectory() as folder:
        # All in one thread: PyTorch's state and the judge's processes belong to it.
        tools = _Tools(make, Path(folder))
        try:
            _server(tools, thread).run("stdio")
        finally:
            thread.submit(tools.close).result()


def _server(tools: _Tools, thread: ThreadPoolExecutor) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("kernelllm-judge", instructions=INSTRUCTIONS, version=__version__)

    @server.tool()
    def judge(
        reference: str, candidate: str, timing: bool = True, min_speedup: float = 0.0, reproducer: str = ""
    ) -> dict[str, Any]:
        """Decides whether a Triton kernel may replace a PyTorch module: correctness, memory, cheating, speed.

        Args:
            reference: path of a file in KernelBench's form (Model, get_inputs, get_init_inputs), or file.py::Class with a
                marked class.
            candidate: path or text of a kernel module (Triton kernels and forward(self, ...)), or of an answer with ModelNew.
            timing: whether to measure speed, where there is a GPU.
            min_speedup: reject below this speedup over eager; 0 only reports it.
            reproducer: path of the script to write where a plain call shows that the candidate is wrong; by default in a
                folder of this server's.

        Returns:
            The verdict with rule, reason, checks, certificate (addresses) and timing; the kernel module if it was accepted;
            the reproducer's path and text, or why there is none.
        """
        return thread.submit(tools.judge, reference, candidate, timing, min_speedup, reproducer).result()

    @server.tool()
    def explain(verdict: dict[str, Any] | None = None) -> str:
        """Says in plain words what a verdict means: the rule, what it protects from, and what to do.

        Args:
            verdict: what the tool judge returned, or the JSON of kernelllm-judge --json; the last verdict if left out.
        """
        return thread.submit(tools.explain, verdict).result()

    @server.tool()
    def rank(reference: str, candidates: list[str], timing: bool = True) -> dict[str, Any]:
        """Judges several candidates for one reference, and orders them: accepted ones by speedup, then the others.

        Args:
            reference: as for the tool judge.
            candidates: paths or texts, as for the tool judge.
            timing: whether to measure speed; without a GPU, candidates are ordered by their verdicts only.
        """
        return thread.submit(tools.rank, reference, candidates, timing).result()

    return server


class _Tools:
    """What the tools do, in one thread."""

    def __init__(self, make: Callable[[], WarmJudge], folder: Path) -> None:
        self._make, self._folder = make, folder
        self._warm: WarmJudge | None = None
        self._last: Judged | None = None
        self._count = 0

    def close(self) -> None:
        """Ends the judge."""
        if self._warm is not None:
            self._warm.__exit__(None, None, None)

    def judge(
        self, reference: str, candidate: str, timing: bool, min_speedup: float, reproducer: str
    ) -> dict[str, Any]:
        self._count += 1
        file = Path(reproducer) if reproducer else self._folder / f"reproducer_{self._count}.py"
        judged = self._judged(reference, candidate, timing, min_speedup, file)
        script = judged.reproducer.read_text(encoding="utf-8") if judged.reproducer else ""
        kernel = judged.source if judged.verdict.accepted else ""
        return {**judged.to_json(), "script": script, "note": judged.note, "kernel": kernel}

    def explain(self, verdict: dict[str, Any] | None) -> str:
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

    def rank(self, reference: str, candidates: list[str], timing: bool) -> dict[str, Any]:
        found = []
        for number, candidate in enumerate(candidates):
            verdict = self._judged(reference, candidate, timing, 0.0, None).verdict
            speed = verdict.speedup.value if verdict.speedup else None
            place = {"number": number, "candidate": "" if "\n" in candidate else candidate, "speedup": speed}
            found.append(
                place | {n: getattr(verdict, n) for n in ("verdict", "rule", "reason", "kernel_hash")}
            )
        return {
            "ranking": sorted(found, key=lambda each: (ORDER[each["verdict"]], -(each["speedup"] or 0.0)))
        }

    def _judged(
        self, reference: str, candidate: str, timing: bool, min_speedup: float, reproducer: Path | None
    ) -> Judged:
        from kernelllm_judge.candidate import Speed
        from kernelllm_judge.tool.warm import Unjudged

        try:
            # While it serves, the MCP package keeps file descriptor 1 from the protocol; Python's buffer would come out later.
            with contextlib.redirect_stdout(sys.stderr):
                if self._warm is None:
                    self._warm = self._make().__enter__()
                self._last = self._warm.judge(reference, candidate, Speed(timing, min_speedup), reproducer)
        except Unjudged as why:
            raise ToolError(str(why)) from None
        return self._last
