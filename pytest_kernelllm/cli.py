"""The ``kernelllm`` command: one function a subcommand, each thin over the code that the plugin uses."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_kernelllm.config import ConfigError, Settings, load_settings

if TYPE_CHECKING:
    from pytest_kernelllm.verify import Judged, Pair

OK, REJECTED, UNJUDGED = 0, 1, 2
"""Exit codes: all well; rejected or nothing found; could not be judged, or wrong use."""


class CommandError(Exception):
    """Something a person has to put right; one sentence."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        return int(options.run(options))
    except (CommandError, ConfigError) as error:
        print(f"kernelllm: {error}", file=sys.stderr)
        return UNJUDGED
    except KeyboardInterrupt:
        print("kernelllm: interrupted; what was finished is kept.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "kernelllm", description="Triton kernels for marked PyTorch modules: written, proven, adopted."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    scan = command("scan", run_scan, "List the targets found in files and folders, without importing them.")
    scan.add_argument("paths", nargs="*", default=["."], help="files and folders (default: here)")
    scan.add_argument(
        "--kernelbench", action="store_true", help="also take files in KernelBench's form (Model, get_inputs)"
    )
    scan.add_argument("--json", action="store_true", help="print JSON, one target a line")

    generate = command("generate", run_generate, "Have candidates written for one target and print them.")
    generate.add_argument("target", help="file.py::Class")
    generate.add_argument("-k", "--samples", type=int, help="how many candidates")
    generate.add_argument("--generator", help="inductor, files")
    generate.add_argument("--candidates-dir", help="folder of the files generator")
    generate.add_argument(
        "--raw", action="store_true", help="print completions as they were written, not kernel modules"
    )

    verify = command(
        "verify",
        run_verify,
        "Judge a candidate file against a reference: exit 0 accepted, 1 rejected, 2 could not be judged.",
    )
    verify.add_argument(
        "files",
        nargs="*",
        metavar="REFERENCE CANDIDATE",
        help="reference.py in KernelBench's form or file.py::Class, then candidate.py",
    )
    verify.add_argument(
        "--pairs", metavar="DIR", help="judge every subfolder that holds reference.py and candidate.py"
    )
    verify.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="where the candidate runs; cpu is Triton's interpreter",
    )
    verify.add_argument("--arch", help="architecture to compile for without a GPU (default sm_90)")
    verify.add_argument("--no-timing", action="store_true", help="prove only")
    verify.add_argument(
        "--min-speedup",
        type=float,
        default=0.0,
        help="reject below this speedup over the baseline (default: report only)",
    )
    verify.add_argument(
        "--baseline",
        choices=("eager", "compile"),
        help="what the speedup is measured against (default eager)",
    )
    verify.add_argument(
        "--isolation",
        choices=("best", "strict"),
        help="strict judges nothing where candidates cannot be isolated fully (default best)",
    )
    verify.add_argument("--deadline", type=float, help="seconds one candidate may take (default 60)")
    verify.add_argument(
        "--workers", type=int, help="judging processes over all GPUs (default: 4 a GPU, by the CPUs)"
    )
    verify.add_argument(
        "--json",
        metavar="FILE",
        help="write the verdict as JSON, or JSON lines with --pairs; - is standard output",
    )

    bench = command(
        "bench",
        run_bench,
        "Measure a generator: pass@k and fast_p over marked targets and files in KernelBench's form. Run again, it goes on.",
    )
    bench.add_argument("paths", nargs="+", metavar="PATH", help="files and folders")
    bench.add_argument("-k", "--samples", type=int, help="completions per target (default 4)")
    bench.add_argument(
        "--at", metavar="K,K", help="each k to give pass@k for (default 1, 10, 20 as far as drawn, and all)"
    )
    bench.add_argument("--generator", help="the one generator to measure")
    bench.add_argument("--candidates-dir", help="folder of the files generator")
    bench.add_argument("--model", help="model on the Hugging Face Hub, or a folder")
    bench.add_argument("--revision", help="the model's revision, best a commit hash")
    bench.add_argument("--endpoint", help="URL, hf:NAME, or a model at a provider")
    bench.add_argument("--preset", choices=("published", "script"), help="sampling (default published)")
    bench.add_argument("--temperature", type=float, help="in place of the preset's")
    bench.add_argument("--seed", type=int, help="what sampling starts from (default 0)")
    bench.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), help="where candidates run; cpu is Triton's interpreter"
    )
    bench.add_argument("--arch", help="architecture to compile for without a GPU (default sm_90)")
    bench.add_argument("--no-timing", action="store_true", help="prove only: pass@k without fast_p")
    bench.add_argument("--deadline", type=float, help="seconds one candidate may take (default 60)")
    bench.add_argument("--workers", type=int, help="candidates judged side by side (default: by the CPUs)")
    bench.add_argument(
        "--isolation",
        choices=("best", "strict"),
        help="strict judges nothing where candidates cannot be isolated fully (default best)",
    )
    bench.add_argument("--json", metavar="FILE", help="write all figures as JSON; - is standard output")
    bench.add_argument("--plot", metavar="FILE", help="draw pass@k over k: FILE.svg or FILE.png")

    apply = command("apply", run_apply, "Apply suggested patches to the working tree.")
    apply.add_argument(
        "names", nargs="*", help="patches by name, as the run's table shows them (default: all)"
    )

    store = command("store", run_store, "Look into the store of candidates and verdicts.")
    store.add_argument(
        "action",
        choices=("list", "show", "verify", "gc"),
        help="list verdicts; show one by the start of its hash; verify every entry; gc what no target in PATHS needs",
    )
    store.add_argument("arguments", nargs="*", help="a hash (show) or paths (gc)")
    return parser


def _settings(**overrides: Any) -> Settings:
    return load_settings(Path.cwd(), overrides)


def run_scan(options: argparse.Namespace) -> int:
    """``kernelllm scan``."""
    from pytest_kernelllm.discover.scan import scan

    found = scan([Path(p) for p in options.paths], Path.cwd(), kernelbench=options.kernelbench)
    for target in found.targets:
        adopted = f"  adopted {target.kernel}" if target.kernel else ""
        print(
            json.dumps(target.to_json())
            if options.json
            else f"{target.id}  line {target.line}  {target.source_hash[:12]}{adopted}"
        )
    for problem in found.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    return OK if found.targets else REJECTED


def run_generate(options: argparse.Namespace) -> int:
    """``kernelllm generate``."""
    from pytest_kernelllm.errors import SessionError
    from pytest_kernelllm.generate.protocol import GenerateError
    from pytest_kernelllm.session import open_session

    settings = _settings(
        generator=options.generator, samples=options.samples, candidates_dir=options.candidates_dir
    )
    target = _target(options.target)
    try:
        with open_session(Path.cwd(), settings) as session:
            written = 0
            for draft, completion in session.drafts(target):
                text = completion.text if options.raw else draft.candidate.source if draft.candidate else ""
                if text:
                    written += 1
                    print(
                        f"# ---- candidate {draft.index}: {completion.generator}, {completion.note}\n{text}"
                    )
                else:
                    reason = draft.verdict.reason if draft.verdict else draft.reason
                    print(f"kernelllm: candidate {draft.index}: {reason}", file=sys.stderr)
    except (SessionError, GenerateError) as error:
        raise CommandError(str(error)) from None
    return OK if written else REJECTED


def run_verify(options: argparse.Namespace) -> int:
    """``kernelllm verify``."""
    from pytest_kernelllm.verify import Pair, VerifyError, find_pairs, verify_all

    if bool(options.pairs) == bool(options.files) or (options.files and len(options.files) != 2):
        raise CommandError("verify takes REFERENCE.py CANDIDATE.py, or --pairs DIR.")
    settings = _settings(
        device=options.device,
        arch=options.arch,
        timing=False if options.no_timing else None,
        deadline=options.deadline,
        workers=options.workers,
        isolation=options.isolation,
        baseline=options.baseline,
    )
    if options.pairs:
        if not Path(options.pairs).is_dir():
            raise CommandError(f"There is no folder {options.pairs}.")
        pairs = find_pairs(Path(options.pairs))
        if not pairs:
            raise CommandError(f"No subfolder of {options.pairs} holds reference.py and candidate.py.")
        return _verify_pairs(pairs, settings, options)
    pair = Pair(Path(options.files[1]).stem, options.files[0], Path(options.files[1]))
    judged: list[Judged] = []
    try:
        verify_all([pair], settings, judged.append, options.min_speedup)
    except VerifyError as error:
        raise CommandError(str(error)) from None
    verdict = judged[0].verdict
    if options.json == "-":
        print(json.dumps(verdict.to_json(), indent=1, allow_nan=False))
    else:
        print(f"{verdict.verdict} ({verdict.stage})" + (f": {verdict.reason}" if verdict.reason else ""))
        for timing in verdict.timing:
            s = timing.speedup
            print(
                f"  {timing.case}: {timing.kernel.p50:.1f} µs, eager {timing.eager.p50:.1f} µs, {s.value:.2f}x [{s.low:.2f}, {s.high:.2f}]"
            )
        if options.json:
            Path(options.json).write_text(
                json.dumps(verdict.to_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8"
            )
    return {"accepted": OK, "rejected": REJECTED, "inconclusive": UNJUDGED}[verdict.verdict]


def _verify_pairs(pairs: list[Pair], settings: Settings, options: argparse.Namespace) -> int:
    import contextlib

    from pytest_kernelllm.report.progress import judging_progress
    from pytest_kernelllm.verify import VerifyError, verify_all

    counts = {"accepted": 0, "rejected": 0, "inconclusive": 0}
    with contextlib.ExitStack() as stack:
        out = sys.stdout
        if options.json and options.json != "-":
            out = stack.enter_context(Path(options.json).open("w", encoding="utf-8"))
        advance = stack.enter_context(judging_progress(len(pairs)))

        def done(judged: Judged) -> None:
            verdict = judged.verdict
            counts[verdict.verdict] += 1
            text = f"{judged.pair.name}: {verdict.verdict} {verdict.reason}".rstrip()
            print(judged.to_line() if options.json else text, file=out, flush=True)
            advance()

        try:
            verify_all(pairs, settings, done, options.min_speedup)
        except VerifyError as error:
            raise CommandError(str(error)) from None
    print("kernelllm: " + ", ".join(f"{n} {name}" for name, n in counts.items()), file=sys.stderr)
    return UNJUDGED if counts["inconclusive"] else REJECTED if counts["rejected"] else OK


def run_bench(options: argparse.Namespace) -> int:
    """``kernelllm bench``."""
    from pytest_kernelllm.discover.scan import scan
    from pytest_kernelllm.errors import SessionError
    from pytest_kernelllm.generate.protocol import GenerateError
    from pytest_kernelllm.passk.command import measure
    from pytest_kernelllm.passk.errors import BenchError

    settings = _settings(
        generator=options.generator,
        samples=options.samples,
        candidates_dir=options.candidates_dir,
        model=options.model,
        revision=options.revision,
        endpoint=options.endpoint,
        preset=options.preset,
        temperature=options.temperature,
        seed=options.seed,
        device=options.device,
        arch=options.arch,
        timing=False if options.no_timing else None,
        deadline=options.deadline,
        workers=options.workers,
        isolation=options.isolation,
    )
    found = scan([Path(p) for p in options.paths], Path.cwd(), kernelbench=True)
    for problem in found.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    if not found.targets:
        print(f"kernelllm: no target in {' '.join(options.paths)}", file=sys.stderr)
        return REJECTED
    plot = Path(options.plot) if options.plot else None
    try:
        whole = measure(Path.cwd(), settings, found.targets, options.at, options.json, plot)
    except (BenchError, SessionError, GenerateError) as error:
        raise CommandError(str(error)) from None
    return OK if whole else UNJUDGED


def run_apply(options: argparse.Namespace) -> int:
    """``kernelllm apply``."""
    from pytest_kernelllm.store import Store
    from pytest_kernelllm.suggest.patch import COMBINED, PatchError, apply

    folder = Store(Path.cwd(), _settings().store).path / "patches"
    # The combined patch, because patches for one file apply each alone, but not one after the other.
    names = options.names or (
        [COMBINED] if (folder / f"{COMBINED}.patch").is_file() else [p.stem for p in folder.glob("*.patch")]
    )
    if not names:
        raise CommandError(f"There are no patches in {folder}; run `pytest --kernelllm` first.")
    for name in names:
        path = Path(name) if Path(name).is_file() else folder / f"{name.removesuffix('.patch')}.patch"
        if not path.is_file():
            raise CommandError(f"There is no patch {name} in {folder}.")
        try:
            apply(Path.cwd(), path)
        except PatchError as error:
            raise CommandError(str(error)) from None
        print(f"applied {path.stem}")
    return OK


def run_store(options: argparse.Namespace) -> int:
    """``kernelllm store``."""
    from pytest_kernelllm.discover.scan import scan
    from pytest_kernelllm.store import Store

    store = Store(Path.cwd(), _settings().store)
    records = list(store.verdicts())
    if options.action == "list":
        for record in records:
            verdict = record.verdict
            speed = f"{verdict.speedup.value:.2f}x" if verdict.speedup else "-"
            print(
                f"{verdict.kernel_hash[:12]}  {verdict.verdict:12}  {speed:>7}  {record.target}  {verdict.reason[:80]}"
            )
    elif options.action == "show":
        wanted = options.arguments[0] if options.arguments else ""
        match = [r for r in records if wanted and r.verdict.kernel_hash.startswith(wanted)]
        if not match:
            raise CommandError(
                f"No verdict's hash starts with {wanted!r}; `kernelllm store list` shows them."
            )
        print(json.dumps(match[0].to_json(), indent=1))
    elif options.action == "gc":
        found = scan([Path(p) for p in options.arguments or ["."]], Path.cwd())
        print(f"forgot {store.gc({t.source_hash for t in found.targets})} targets")
    else:
        print(f"{len(records)} verdicts are whole")
    for problem in store.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    return REJECTED if store.problems else OK


def _target(reference: str) -> Any:
    from pytest_kernelllm.discover.scan import scan_file

    file, _, name = reference.partition("::")
    if not Path(file).is_file():
        raise CommandError(f"There is no file {file}; a target is named file.py::Class.")
    found = scan_file(Path(file), Path.cwd(), kernelbench=name in ("", "Model"))
    match = [t for t in found.targets if t.name == name or (not name and len(found.targets) == 1)]
    if not match:
        known = ", ".join(t.name for t in found.targets) or "none"
        raise CommandError(f"{file} marks no class {name}; it marks {known}.")
    return match[0]


if __name__ == "__main__":
    sys.exit(main())
