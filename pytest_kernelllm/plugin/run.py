"""One ``pytest --kernelllm``: what it collects, what its header and summary say, what a conftest adds."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import shlex
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from kernelllm_judge.core.errors import ConfigError, SessionError
from kernelllm_judge.core.records import ADOPTED, CandidateId, Target
from kernelllm_judge.core.spans import Recorder, Span, process_started
from pytest_kernelllm.config.options import FREQUENT
from pytest_kernelllm.config.settings import Settings, assigned, load_settings
from pytest_kernelllm.core.interruption import terminable
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.overrides import Overrides
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.discover.scan import Scan, scan_file
from pytest_kernelllm.generate.protocol import GenerateError, Generator as KernelGenerator
from pytest_kernelllm.models.generator import PromptHook
from pytest_kernelllm.plugin.items import CandidateItem, TargetFile, TargetItem
from pytest_kernelllm.plugin.loop import TOGETHER, Loop
from pytest_kernelllm.plugin.reports import check_reports, write_reports
from pytest_kernelllm.pool.engine import process_name
from pytest_kernelllm.report.spent import silent
from pytest_kernelllm.session.session import Session

NO_TARGET = (
    "No target was found: mark an nn.Module in a .py file at module level with @triton_candidate, or name the folder that has "
    "one (`kernelllm scan` lists targets)."
)

USAGE = "kernelllm-usage"
"""Key under which pytest-xdist's workers report ``Session.usage``."""

NOTES = "kernelllm-notes"
"""Key under which pytest-xdist's workers report ``Session.notes``."""


class Run:
    """One ``pytest --kernelllm``: the session, and what its items report. Registered as a plugin."""

    def __init__(self, config: pytest.Config) -> None:
        """Reads the settings; imports, builds and generates nothing yet."""
        self.config = config
        self.root = config.rootpath
        self.recorder = Recorder(process_name("pytest"), detailed=bool(config.getoption("kernelllm_report")))
        self.recorder.add("starting", "", process_started(), time.time())
        self.only = bool(config.getoption("kernelllm_only"))
        check_reports(config)
        given = {name: config.getoption(f"kernelllm_{name}") for name in FREQUENT}
        try:
            self.settings: Settings = load_settings(
                self.root, given | assigned(config.getoption("kernelllm_set"))
            )
            self.session = Session(
                self.root,
                self.settings,
                generators=self._generators_of_plugins(),
                overrides=self._overrides,
                prompt=self._prompt_hook(),
                progress=lambda text: self.loop.note(text),
                # pytest-xdist's workers do not know which target is theirs next, and are ahead of each other anyway.
                ahead=not hasattr(config, "workerinput"),
                recorder=self.recorder,
            )
            self.loop = Loop(self.session)
            config.pluginmanager.register(self.loop)
            self.session.history.check()
            self.isolation = self.session.context.isolation.level
            self.writers = [generator.name for generator in self.session.generators]
        except (ConfigError, GenerateError, SessionError) as error:
            raise pytest.UsageError(str(error)) from None
        self.outcomes: dict[tuple[str, CandidateId], Outcome] = {}
        self._stated: dict[str, Overrides] = {}
        self._scans: dict[Path, Scan] = {}
        self._found = False
        """Whether a marker was collected."""
        self._tests: list[Path] = []
        self._notes: list[str] = []
        """Notes that pytest-xdist's workers sent."""
        self._slots = 0
        """Slots of pytest-xdist's workers."""
        self._spans: list[Span] = []
        """What was done in pytest-xdist's workers."""
        self._stopped = ""
        """Why the run ended before everything was tried."""
        self._go_on = ""
        """The command that goes on, after an interruption."""
        self._worker_processes: list[subprocess.Popen[bytes]] = []
        """pytest-xdist's workers on this machine."""
        cleanup = contextlib.ExitStack()
        cleanup.enter_context(terminable())
        config.add_cleanup(cleanup.close)

    # ------------------------------------------------------------------ collecting

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Without paths on the command line, looks for targets in ``kernelllm_paths``, or in the whole project."""
        if session.config.args_source is not pytest.Config.ArgsSource.ARGS:
            self._look_everywhere(session.config)
        if not session.config.option.collectonly and not session.config.pluginmanager.hasplugin("dsession"):
            self.session.warm()
        with self.recorder.span("collecting"):
            return (yield)

    def _look_everywhere(self, config: pytest.Config) -> None:
        self._tests = [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]
        extra = [*config.getini("kernelllm_paths"), *self.settings.paths] or ["."]
        config.args = [*dict.fromkeys([*config.args, *(str(self.root / path) for path in extra)])]

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leaves out files without targets: all of them with ``--kernelllm-only``, else those outside the project's tests."""
        if not collection_path.is_file():
            return None
        is_test = any(collection_path.is_relative_to(folder) for folder in self._tests)
        if self.only or (self._tests and not is_test):
            found = self.scan(collection_path)
            return None if found.targets or found.problems else True
        return None

    def scan(self, path: Path) -> Scan:
        """Returns the targets of one file."""
        if path not in self._scans:
            self._scans[path] = scan_file(path, self.root) if path.suffix == ".py" else Scan()
        return self._scans[path]

    def collect_file(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Returns a collector for a file with targets, or with markers that make none."""
        if path.suffix != ".py":
            return None
        found = self.scan(path)
        if not found.targets and not found.problems:
            return None
        self._found = True
        # Straight below the session: pytest would import the ``__init__.py`` of a package in between.
        return TargetFile.from_parent(parent.session, path=path, kernelllm=self.session, found=found)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """Puts kernels last, whatever the order of paths: no unit test waits for a judge.

        That is before ``--sw`` counts, after pytest-randomly shuffles, and before ``--ff`` puts failures first.
        """
        items.sort(key=lambda item: isinstance(item, TargetItem))
        result = yield
        items.sort(key=lambda item: isinstance(item, TargetItem))
        return result

    # ------------------------------------------------------------------ reporting

    def pytest_report_header(self) -> list[str]:
        """Returns who writes, where candidates are judged, and where they are kept."""
        environment = self.session.context.environment
        where = (
            f"{environment.gpu} ({environment.arch})"
            if environment.gpu
            else f"no GPU: Triton's interpreter, compiled for {environment.arch}"
        )
        why = f" (auto: {self.session.chosen.why})" if self.session.chosen.why else ""
        names, asked = ", ".join(self.writers), counted(self.settings.samples, "candidate")
        return [
            f"kernelllm: {names}{why}, {asked} a target; {where}; store {self.session.context.store.path.name}/",
            f"isolation: {self.isolation}",
            *filter(None, [self.session.search_in_words]),
        ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Informs one of pytest-xdist's workers how items are distributed."""
        node.workerinput[TOGETHER] = self.config.getoption("dist") in ("loadscope", "loadfile")
        process = getattr(getattr(node.gateway, "_io", None), "popen", None)
        self._worker_processes += [process] if process else []

    def pytest_keyboard_interrupt(self) -> None:
        """Ends what is being done, so that the closing section and the reports come before the run is killed."""
        self.session.interrupt()
        for process in self._worker_processes:  # pytest-xdist would wait for them
            process.terminate()
        self._go_on = shlex.join(["pytest", *map(str, self.config.invocation_params.args)])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Notes why the run stopped early, and reports from one of pytest-xdist's workers how busy its slots were.

        With ``--kernelllm-strict`` a generator that wrote nothing at all fails the run.
        """
        interrupted = "interrupted" if exitstatus == pytest.ExitCode.INTERRUPTED else ""
        self._stopped = str(session.shouldfail or session.shouldstop or interrupted)
        if (
            self.settings.require_kernels
            and exitstatus == pytest.ExitCode.OK
            and silent(self.outcomes.values())
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if hasattr(self.config, "workeroutput"):
            slots, spans = self.session.usage
            self.config.workeroutput[USAGE] = slots, [span.to_json() for span in spans]
            self.config.workeroutput[NOTES] = list(self.session.processes.notes)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Adds up how busy the slots of pytest-xdist's workers were."""
        slots, spans = getattr(node, "workeroutput", {}).get(USAGE, (0, []))
        self._notes += getattr(node, "workeroutput", {}).get(NOTES, [])
        self._slots += slots
        self._spans += map(Span.from_json, spans)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attaches the outcome to the report, also in pytest-xdist's workers."""
        report = yield
        if isinstance(item, CandidateItem) and item.outcome is not None and report.when == "call":
            report.kernelllm = item.outcome.to_json()  # type: ignore[attr-defined]  # how plugins add to reports
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gathers outcomes, from this process or from pytest-xdist's workers."""
        data = getattr(report, "kernelllm", None)
        if data is None or hasattr(self.config, "workerinput"):
            return
        outcome = Outcome.from_json(data)
        key = (outcome.target.id, outcome.id)
        if key not in self.outcomes:
            self.outcomes[key] = outcome
            self.config.hook.pytest_kernelllm_verdict(config=self.config, outcome=outcome)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Writes the closing table, the patches and the reports."""
        if self._go_on:
            settled = {(outcome.target.id, outcome.id): outcome for outcome in self.session.settled}
            self.outcomes = settled | self.outcomes
        if not self.outcomes:
            write_reports(
                terminalreporter, self.config, self.session.context.environment, [], {}, stopped=self._stopped
            )
            if self._go_on:
                terminalreporter.section("kernelllm")
                terminalreporter.write_line(self._interrupted())
                return
            if not self._found and not self.config.pluginmanager.hasplugin("dsession"):
                terminalreporter.section("kernelllm")
                terminalreporter.write_line(NO_TARGET)
            return
        from pytest_kernelllm.report.summary import write_summary

        order = {candidate: number for number, candidate in enumerate([*self.session.candidate_ids, ADOPTED])}
        outcomes = sorted(self.outcomes.values(), key=lambda outcome: order[outcome.id])
        with self.recorder.span("writing suggestions"):
            suggestions = self.session.suggest(outcomes)
        slots, own = self.session.usage
        spans = (*own, *self._spans)
        usage = Usage.of(slots + self._slots, spans)
        lines = self.config.hook.pytest_kernelllm_summary(
            outcomes=outcomes, generators=self.writers, samples=self.settings.samples
        )
        recorded = self.session.history.record(outcomes, self.config.getoption("kernelllm_save") or "")
        write_summary(
            terminalreporter,
            self.session.context.store.path,
            outcomes,
            suggestions,
            [
                *filter(None, [self._interrupted()]),
                *self.session.context.store.problems,
                *dict.fromkeys([*self.session.processes.notes, *self._notes]),
            ],
            [line for part in lines for line in part],
            usage if usage and self.session.context.environment.on_gpu else None,
            {o.target.id for o in outcomes if adoption_state(self.root, o.target) == "stale"},
            recorded,
        )
        write_reports(
            terminalreporter,
            self.config,
            self.session.context.environment,
            outcomes,
            suggestions,
            usage,
            spans,
            self._stopped,
            annotate=self.settings.annotations,
        )

    def _interrupted(self) -> str:
        if not self._go_on:
            return ""
        kept = counted(sum(outcome.verdict is not None for outcome in self.outcomes.values()), "verdict")
        return f"Interrupted: {kept} kept in {self.session.context.store.path.name}/; to go on: {self._go_on}"

    def pytest_unconfigure(self) -> None:
        """Ends the judging processes."""
        self.session.close()

    # ------------------------------------------------------------------ what a conftest adds

    def _generators_of_plugins(self) -> list[KernelGenerator]:
        lists: list[list[KernelGenerator] | None] = self.config.hook.pytest_kernelllm_generators(
            config=self.config
        )
        return [generator for part in lists if part for generator in part]

    def _overrides(self, target: Target) -> Overrides:
        if target.id not in self._stated:
            hook = self.config.hook
            self._stated[target.id] = Overrides(
                inputs=hook.pytest_kernelllm_inputs(config=self.config, target=target),
                tolerance=hook.pytest_kernelllm_tolerance(config=self.config, target=target),
            )
        return self._stated[target.id]

    def _prompt_hook(self) -> PromptHook:
        hook = self.config.hook.pytest_kernelllm_prompt

        def replace(target: Target, code: str, prompt: str) -> str | None:
            replaced: str | None = hook(config=self.config, target=target, code=code, prompt=prompt)
            return replaced

        sources = [inspect.getsource(each.function) for each in hook.get_hookimpls()]
        key = hashlib.sha256("".join(sources).encode()).hexdigest()[:12] if sources else ""
        return PromptHook(replace, key)
