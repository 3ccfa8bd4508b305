"""The command ``kernelllm-judge``: judges one candidate file against one reference file."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelllm_judge.core.output_file import output_file

if TYPE_CHECKING:
    from kernelllm_judge.in_memory import JudgedKernel

ACCEPTED, REJECTED, UNUSABLE, UNDECIDED = 0, 1, 2, 3
"""Exit codes."""


class CommandError(Exception):
    """A run ends without a verdict: one sentence and the exit code."""

    def __init__(self, sentence: object, code: int = UNUSABLE) -> None:
        """``code`` is one of those above."""
        super().__init__(f"{str(sentence).removesuffix('.')}.")
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Judges one pair and returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        judged = _judge(options)
        if options.write:
            _write(Path(options.write), judged.source)
    except CommandError as error:
        print(f"kernelllm-judge: {error}", file=sys.stderr)
        return error.code
    except Exception:  # Python's own exit code for it would mean "rejected"
        traceback.print_exc()
        return UNDECIDED
    verdict = judged.verdict
    if options.json:
        print(json.dumps(verdict.to_json(), allow_nan=False))
    else:
        print(verdict.in_words() + (f" (rule: {verdict.rule})" if verdict.rule else ""))
    return {"accepted": ACCEPTED, "rejected": REJECTED}.get(verdict.verdict, UNDECIDED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kernelllm-judge",
        description="Decide whether a Triton kernel may replace a PyTorch module: correctness, memory, cheating, speed.",
        epilog="Exit code: 0 accepted, 1 rejected, 2 the arguments or files cannot be used, 3 undecided.",
    )
    parser.add_argument(
        "reference",
        metavar="REFERENCE",
        help="a file in KernelBench's form (Model, get_inputs, get_init_inputs), or file.py::Class with a marked class",
    )
    parser.add_argument(
        "candidate", metavar="CANDIDATE", help="a kernel module, or an answer with a class ModelNew"
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as one line of JSON")
    parser.add_argument(
        "--write",
        metavar="FILE",
        type=output_file,
        help="write the kernel module that was judged: what may be adopted",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where the candidate runs; cpu is Triton's interpreter (default: the GPU if there is one)",
    )
    parser.add_argument(
        "--arch",
        type=_arch,
        default="sm_90",
        metavar="SM",
        help="GPU architecture to compile for where there is no GPU (default: sm_90)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds that the candidate may take (default: 60)",
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
    parser.add_argument(
        "--isolation",
        choices=("best", "strict"),
        default="best",
        help="strict judges nothing where the candidate cannot be isolated fully",
    )
    return parser


def _arch(text: str) -> str:
    if not re.fullmatch(r"sm_\d{2,3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no architecture; expected one such as sm_90")
    return text


def _judge(options: argparse.Namespace) -> JudgedKernel:
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            raise CommandError(f"{name} is not installed; run `pip install 'kernelllm-judge[torch]'`.")
    from kernelllm_judge.core.errors import ConfigError
    from kernelllm_judge.in_memory import judge
    from kernelllm_judge.launching import ServerFailed
    from kernelllm_judge.pair_files import PairError
    from kernelllm_judge.target.errors import TargetError

    try:
        with _output_on_stderr():
            return judge(
                options.reference,
                Path(options.candidate),
                min_speedup=options.min_speedup,
                timing=options.timing,
                dtypes=options.dtype,
                device=options.device,
                arch=options.arch,
                deadline=options.deadline,
                isolation=options.isolation,
            )
    except (ConfigError, PairError, TargetError) as error:
        raise CommandError(error) from None
    except ServerFailed as error:
        raise CommandError(error, UNDECIDED) from None


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
