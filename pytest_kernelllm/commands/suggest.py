"""``kernelllm suggest``: the steps of the GitHub action, see ``docs/how-to/github-action.md``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_kernelllm.commands.common import OK, REJECTED, UNJUDGED, CommandError
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.core.git import work_tree
from pytest_kernelllm.core.words import say
from pytest_kernelllm.report.html.page import HtmlError, check_html, write_page
from pytest_kernelllm.report.markdown import code
from pytest_kernelllm.report.read import Report, ReportError
from pytest_kernelllm.suggest.github.artifact import PAGE, read_artifact
from pytest_kernelllm.suggest.github.context import read_job
from pytest_kernelllm.suggest.github.dry_run import dry_run
from pytest_kernelllm.suggest.github.errors import ApiError, GitError, SuggestionRefused
from pytest_kernelllm.suggest.github.git import Git
from pytest_kernelllm.suggest.github.guard import check_suggest, check_verify
from pytest_kernelllm.suggest.github.pack import pack, publish
from pytest_kernelllm.suggest.github.runner import ActionsRunner
from pytest_kernelllm.suggest.place import FOLDER
from pytest_kernelllm.web.secret import Secret

if TYPE_CHECKING:
    from pytest_kernelllm.suggest.github.flow import SuggestOutcome

HELP = "The steps of the GitHub action: check the job, pack what was verified, open a pull request."

TOKEN = "INPUT_TOKEN"
"""Environment variable with the action's input ``token``."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show branch, text and files of the pull request for the last commit here; nothing is sent or changed",
    )
    parser.add_argument(
        "--from",
        metavar="PATH",
        default="kernelllm-artifact",
        help="with --dry-run: folder that `pack` wrote, or file written by --kernelllm-report (default: %(default)s)",
    )
    steps = parser.add_subparsers(metavar="STEP", dest="step")
    guard = steps.add_parser("guard", help="refuse jobs in which untrusted code could reach a token")
    guard.add_argument("--mode", choices=("verify", "suggest"), required=True)
    pack = steps.add_parser(
        "pack", help="write the folder with report and patches, and the job's summary and annotations"
    )
    pack.add_argument("--report", metavar="FILE", required=True, help="file written by --kernelllm-report")
    pack.add_argument("--artifact", metavar="DIR", required=True, help="folder to write")
    propose = steps.add_parser("propose", help=f"open or update the pull request with the token in {TOKEN}")
    propose.add_argument("--artifact", metavar="DIR", required=True, help="folder that `pack` wrote")
    propose.add_argument(
        "--comment",
        action="store_true",
        help="say what was found in one comment on the verified pull request",
    )
    propose.add_argument(
        "--kernels-dir", metavar="DIR", help="the project's setting kernels_dir (default _triton)"
    )


def run(options: argparse.Namespace) -> int:
    """Runs a step; exit code 0, also without permission or anything to do, or 1 if the step refuses the job."""
    if options.dry_run == (options.step is not None):
        raise CommandError("`kernelllm suggest` takes a step (guard, pack, propose) or --dry-run.")
    steps = {"guard": _guard, "pack": _pack, "propose": _propose, None: _dry_run}
    return steps[options.step](options)


def _dry_run(options: argparse.Namespace) -> int:
    project, given = project_here(), Path(getattr(options, "from"))
    top = work_tree(project.root)
    if top is None:
        raise CommandError(f"{project.root} is in no git repository, so there is no branch to suggest for.")
    if not given.exists():
        raise CommandError(
            f"There is no {given}; run `pytest --kernelllm --kernelllm-report=report.json`, then "
            "`kernelllm suggest --dry-run --from report.json`."
        )
    with tempfile.TemporaryDirectory(prefix="kernelllm-") as scratch:
        folder = given
        try:
            if given.is_file():
                folder = Path(scratch) / "artifact"
                pack(given, folder, project.root)
            artifact = read_artifact(folder)
            shown = list(dry_run(artifact, top, Path(scratch) / "git", project.kernels))
        except (OSError, ReportError) as error:
            raise CommandError(f"{given} and its patches cannot be read ({error}).") from None
        except (SuggestionRefused, GitError) as error:
            raise CommandError(str(error)) from None
    print("\n".join(shown))
    return OK


def _guard(options: argparse.Namespace) -> int:
    try:
        job = read_job(os.environ)
        if options.mode == "suggest":
            check_suggest(job)
        else:
            environ = {name: value for name, value in os.environ.items() if name != TOKEN}
            check_verify(job, environ, Path.cwd(), token=bool(os.environ.get(TOKEN)))
    except SuggestionRefused as error:
        ActionsRunner(os.environ).annotate("error", str(error))
        print(error, file=sys.stderr)
        return REJECTED
    return OK


def _pack(options: argparse.Namespace) -> int:
    runner, folder = ActionsRunner(os.environ), Path(options.artifact)
    try:
        report = pack(Path(options.report), folder)
    except (OSError, ReportError) as error:
        raise CommandError(
            f"{options.report} and its patches cannot be packed ({error}); see the output of pytest."
        ) from None
    _write_page(folder / PAGE, report)
    publish(report, Path.cwd(), runner)
    runner.output("patches", str(sum(target.patch is not None for target in report.targets)))
    runner.output("artifact", str(folder))
    return OK


def _write_page(page: Path, report: Report) -> None:
    """Writes the report for people beside the one for programs, where the extra for it is installed."""
    page.unlink(missing_ok=True)
    try:
        check_html()
        write_page(page, report)
    except (HtmlError, OSError) as error:
        print(f"{page.name} is left out: {error}")


def _propose(options: argparse.Namespace) -> int:
    # They need httpx2, which the other steps do without.
    from pytest_kernelllm.suggest.github.client import GitHub
    from pytest_kernelllm.suggest.github.flow import suggest

    text = os.environ.pop(TOKEN, "").strip()
    token, runner = (Secret(text) if text else None), ActionsRunner(os.environ)
    try:
        job = read_job(os.environ)
        check_suggest(job)
        artifact = read_artifact(Path(options.artifact))
        with tempfile.TemporaryDirectory(prefix="kernelllm-") as scratch:
            git = Git(Path(scratch), f"{job.server}/{job.repository}.git", token)
            github = GitHub(job.api, job.repository, token) if token else None
            kernels_dir = options.kernels_dir or FOLDER
            outcome = suggest(job, artifact, git, github, kernels_dir, comment=options.comment)
    except (SuggestionRefused, GitError, ApiError) as error:
        runner.annotate("error", str(error))
        runner.output("result", "refused" if isinstance(error, SuggestionRefused) else "failed")
        return REJECTED
    left = outcome.result in ("artifact", "kept", "outdated")
    runner.annotate("warning" if left else "notice", f"{outcome.sentence} {outcome.url}".strip())
    runner.output("result", outcome.result)
    runner.output("pull-request", outcome.url)
    runner.summary(_summary(outcome))
    return OK


def _summary(outcome: SuggestOutcome) -> str:
    link = f" {outcome.url}" if outcome.url else ""
    return f"## Suggested kernels: {outcome.result}\n\n{code(outcome.sentence)}{link}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a step without the other commands, as the action does."""
    parser = argparse.ArgumentParser("kernelllm suggest", description=HELP)
    add(parser)
    try:
        return run(parser.parse_args(argv))
    except CommandError as error:
        say(error)
        return UNJUDGED


if __name__ == "__main__":
    sys.exit(main())
