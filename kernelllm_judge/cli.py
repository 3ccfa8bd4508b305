"""The command ``kernelllm-judge``: judges one candidate file against one reference file, and has the judge used as a tool."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelllm_judge.core.architectures import ARCHITECTURES
from kernelllm_judge.core.output_file import output_file

if TYPE_CHECKING:
    from kernelllm_judge.tool.warm import Judged, WarmJudge

ACCEPTED, REJECTED, UNUSABLE, UNDECIDED = 0, 1, 2, 3
"""Exit codes."""


class CommandError(Exception):
    """A run ends without a verdict: one sentence and the exit code."""

    def __init__(self, sentence: object, code: int = UNUSABLE) -> None:
        """``code`` is one of those above."""
        super().__init__(f"{str(sentence).removesuffix('.')}.")
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Judges one pair, or runs a subcommand, and returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    run = {"mcp": _serve, "skill": _skill}.get(arguments[0] if arguments else "")
    try:
        return run(arguments[1:]) if run else _judge_pair(_parser().parse_args(arguments))
    except CommandError as error:
        print(f"kernelllm-judge: {error}", file=sys.stderr)
        return error.code
    except Exception:  # Python's own exit code for it would mean "rejected"
        traceback.print_exc()
        return UNDECIDED


def _judge_pair(options: argparse.Namespace) -> int:
    with _opened(options) as warm:
        if not options.watch:
            judged = _judge(warm, options)
            _report(judged, options)
            return _code_of(judged)
        from kernelllm_judge.tool.watch import saves

        code = UNDECIDED
        # An interrupt ends it, whatever runs then.
        with contextlib.suppress(KeyboardInterrupt):
            for _ in saves(_files(options)):
                try:
                    judged = _judge(warm, options)
                    code = _code_of(judged)  # known before anybody reads the verdict
                    _report(judged, options)
                except CommandError as error:
                    print(f"kernelllm-judge: {error}", file=sys.stderr)
                    code = error.code
        return code


def _files(options: argparse.Namespace) -> list[Path]:
    """Returns the files that are watched: of a folder, its own."""
    reference = Path(options.reference.partition("::")[0])
    own = sorted(reference.glob("*.py")) if reference.is_dir() else [reference]
    return own + ([Path(options.candidate)] if options.candidate else [])


def _code_of(judged: Judged) -> int:
    return {"accepted": ACCEPTED, "rejected": REJECTED}.get(judged.verdict.verdict, UNDECIDED)


def _report(judged: Judged, options: argparse.Namespace) -> None:
    verdict = judged.verdict
    if options.write:
        _write(Path(options.write), judged.source)
    if options.json:
        printed = judged.to_json() if options.reproducer else verdict.to_json()
        print(json.dumps(printed, allow_nan=False), flush=True)
    else:
        print(verdict.in_words() + (f" (rule: {verdict.rule})" if verdict.rule else ""), flush=True)
        if judged.reproducer:
            print(f"see it with: python {judged.reproducer}", flush=True)
    if judged.note:
        print(f"kernelllm-judge: {judged.note}.", file=sys.stderr)


def _serve(arguments: Sequence[str]) -> int:
    options = _mcp_parser().parse_args(arguments)
    _require("mcp", "torch", "triton")
    from kernelllm_judge.tool.server import serve

    serve(options.device, options.arch, options.deadline, options.isolation)
    return 0


def _skill(arguments: Sequence[str]) -> int:
    from kernelllm_judge.tool.skill import skill, write_skill

    options = _skill_parser().parse_args(arguments)
    if options.write is None:
        print(skill(), end="")
        return 0
    try:
        print(f"wrote {write_skill(options.write)}")
    except OSError as error:
        raise CommandError(f"{options.write} cannot be written to: {error.strerror}") from None
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kernelllm-judge",
        description="Decide whether a Triton kernel may replace a PyTorch module: correctness, memory, cheating, speed.",
        epilog="Exit code: 0 accepted, 1 rejected, 2 the arguments or files cannot be used, 3 undecided; with --watch, that of the "
        "last verdict. `kernelllm-judge mcp` serves the judge to assistants, and `kernelllm-judge skill` prints what they should "
        "know.",
    )
    parser.add_argument(
        "reference",
        metavar="REFERENCE",
        help="a file in KernelBench's form (Model, get_inputs, get_init_inputs), file.py::Class with a marked class, or a folder "
        "in GPU MODE's form (task.yml, reference.py)",
    )
    parser.add_argument(
        "candidate",
        metavar="CANDIDATE",
        nargs="?",
        help="a kernel module, or an answer with a class ModelNew or a function kernel_function (for a folder: custom_kernel; by "
        "default its submission.py)",
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as one line of JSON")
    parser.add_argument(
        "--write",
        metavar="FILE",
        type=output_file,
        help="write the kernel module that was judged: what may be adopted",
    )
    parser.add_argument(
        "--reproducer",
        metavar="FILE.py",
        type=_script,
        help="where it is rejected at a probe, write a script of plain PyTorch that shows the wrong output there, at the smallest "
        "inputs that are found; its kernel and its inputs lie beside it",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="judge again at each save of one of the files, until it is interrupted",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        default=[],
        metavar="DTYPE",
        help="what the reference's parameters and inputs are cast to, such as bfloat16; may be repeated",
    )
    parser.add_argument("--no-timing", dest="timing", action="store_false", help="do not measure speed")
    parser.add_argument(
        "--min-speedup",
        type=float,
        default=0.0,
        metavar="X",
        help="reject below this speedup over eager (default: report only)",
    )
    _add_judge(parser)
    return parser


def _mcp_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kernelllm-judge mcp",
        description="Serve the judge over the Model Context Protocol, on standard input and output: tools judge, explain and rank.",
    )
    _add_judge(parser)
    return parser


def _skill_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kernelllm-judge skill",
        description="Print the skill file that tells an assistant how to write, judge and offer a kernel.",
    )
    parser.add_argument(
        "--write", metavar="DIR", type=Path, help="write it to DIR/kernelllm-judge/SKILL.md instead"
    )
    return parser


def _add_judge(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where and how candidates run."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where the candidate runs; cpu is Triton's interpreter (default: the GPU if there is one)",
    )
    parser.add_argument(
        "--arch",
        choices=ARCHITECTURES,
        default="sm_90",
        metavar="SM",
        help=f"GPU architecture to compile for where there is no GPU (default: sm_90): {', '.join(ARCHITECTURES)}",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds that the candidate may take (default: 60)",
    )
    parser.add_argument(
        "--isolation",
        choices=("best", "strict"),
        default="best",
        help="strict judges nothing where the candidate cannot be isolated fully",
    )


def _script(text: str) -> str:
    if not text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"{text} is no file of Python; expected one such as wrong.py")
    return output_file(text)


def _require(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            extra = "mcp,torch" if name == "mcp" else "torch"
            raise CommandError(f"{name} is not installed; run `pip install 'kernelllm-judge[{extra}]'`.")


def _opened(options: argparse.Namespace) -> WarmJudge:
    _require("torch", "triton")
    from kernelllm_judge.tool.warm import Unjudged, WarmJudge

    try:
        return WarmJudge(options.device, options.arch, options.deadline, options.isolation)
    except Unjudged as why:
        raise CommandError(why) from None


def _judge(warm: WarmJudge, options: argparse.Namespace) -> Judged:
    from kernelllm_judge.candidate import Speed
    from kernelllm_judge.tool.warm import Unjudged

    speed, reproducer = Speed(options.timing, options.min_speedup), options.reproducer
    try:
        with _output_on_stderr():
            return warm.judge(
                options.reference,
                Path(options.candidate) if options.candidate else None,
                speed,
                Path(reproducer) if reproducer else None,
                options.dtype,
            )
    except Unjudged as why:
        raise CommandError(why, UNDECIDED if why.usable else UNUSABLE) from None


def _write(file: Path, source: str) -> None:
    try:
        file.write_text(source, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _output_on_stderr() -> Iterator[None]:
    """Sends to standard error what the reference prints: standard output is for the verdict."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
