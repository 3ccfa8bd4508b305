"""A GitHub runner as far as a composite action needs one: expressions, conditions, and steps run by bash."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
ACTION = ROOT / "action.yml"


def load_action():
    return yaml.safe_load(ACTION.read_text())


@dataclass
class Ran:
    """What a run of the action left behind."""

    success: bool
    outputs: dict
    summary: str
    log: str
    steps: dict = field(default_factory=dict)


class Runner:
    """Runs ``action.yml`` in a workspace."""

    def __init__(self, temp: Path, workspace: Path, environ: dict) -> None:
        temp.mkdir(parents=True, exist_ok=True)
        self.temp, self.workspace = temp, workspace
        self.environ = {**os.environ, **environ, "RUNNER_TEMP": str(temp), "GITHUB_WORKSPACE": str(workspace)}
        self.environ["GITHUB_ACTION_PATH"] = str(ROOT)

    def run(self, **inputs) -> Ran:
        action = load_action()
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() <= action["inputs"].keys()
        for name, entry in action["inputs"].items():
            assert not entry.get("required") or name in given
            given.setdefault(name, entry.get("default", ""))
        ran = Ran(True, {}, "", "")
        for number, step in enumerate(action["runs"]["steps"]):
            condition = step.get("if", "success()")
            if ran.success and self.holds(condition, given):
                self.step(number, step, given, ran)
        ran.outputs = {
            name: self.text(entry["value"], given, ran.steps) for name, entry in action["outputs"].items()
        }
        return ran

    def step(self, number, step, inputs, ran):
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]
        output, summary, script = (self.temp / f"{name}{number}" for name in ("output", "summary", "script"))
        for file in (output, summary):
            file.write_text("")
        script.write_text(step["run"])
        environ = {name: self.text(value, inputs, ran.steps) for name, value in step.get("env", {}).items()}
        folder = self.workspace / self.text(step.get("working-directory", "."), inputs, ran.steps)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=folder,
            env={
                **self.environ,
                **environ,
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(summary),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        ran.success = done.returncode == 0
        ran.log += done.stdout
        ran.summary += summary.read_text()
        if "id" in step:
            lines = [line.partition("=") for line in output.read_text().splitlines()]
            ran.steps[step["id"]] = {name: value for name, _, value in lines}

    def text(self, template, inputs, steps):
        def value(match):
            where, *rest = match[1].split(".")
            if where == "inputs":
                return inputs[rest[0]]
            if where == "runner":
                return {"temp": str(self.temp)}[rest[0]]
            assert where == "steps" and rest[1] == "outputs"
            return steps.get(rest[0], {}).get(rest[2], "")

        return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", value, str(template))

    def holds(self, condition, inputs):
        if condition == "success()":
            return True
        parts = [re.fullmatch(r"inputs\.([\w-]+) == '(\w+)'", part) for part in condition.split(" && ")]
        return all(inputs[part[1]] == part[2] for part in parts)
