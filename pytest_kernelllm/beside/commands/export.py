"""``kernelllm export``: writes verified kernels for Hugging Face's ``kernels`` library, or as a data set."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import Target
from pytest_kernelllm.commands.common import OK, REJECTED, CommandError, add_judge_options, settings_of
from pytest_kernelllm.commands.targets import find_target
from pytest_kernelllm.core.words import say
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store

HELP = "Export verified kernels: to the layout of Hugging Face's kernels library, or as a data set in KernelBook's form."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("place", metavar="OUT", help="folder of the export; for kernelbook a file: OUT.jsonl")
    parser.add_argument(
        "--to", choices=("hf-kernels", "kernelbook"), required=True, help="form of the export"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TARGET",
        help="file, folder, or file.py::Class; can be given several times (default: the project)",
    )
    parser.add_argument("--name", help="name of the kernel package (default: the name of OUT)")
    parser.add_argument("--version", type=int, metavar="N", help="version of the kernel package (default 1)")
    parser.add_argument(
        "--license",
        metavar="SPDX",
        help="license of the kernel package (default other), or of the pairs (default: the one in pyproject.toml)",
    )
    parser.add_argument(
        "--sign", metavar="KEY.pem", help="sign the kernel package with an Ed25519 private key (extra: sign)"
    )
    add_judge_options(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 1 if nothing could be exported."""
    place = Path(options.place)
    try:
        return _data_set(options, place) if options.to == "kernelbook" else _package(options, place)
    except SessionError as error:
        raise CommandError(str(error)) from None


def _data_set(options: argparse.Namespace, file: Path) -> int:
    """Writes the data set; what is left out is said on standard error."""
    for name in ("name", "version", "sign"):
        if getattr(options, name) is not None:
            raise CommandError(f"--{name} goes with --to hf-kernels.")
    if file.suffix != ".jsonl":
        raise CommandError(f"{file} must end in .jsonl.")
    _need_torch()
    from pytest_kernelllm.beside.kernelbook.export import rows_of
    from pytest_kernelllm.beside.kernelbook.files import write
    from pytest_kernelllm.beside.kernelbook.origin import licence

    root = Path.cwd()
    licences = (licence(root, options.license),)
    settings = settings_of(options)
    store = Store(root, settings.store)
    rows = rows_of(root, _targets(options.only), list(store.verdicts), licences, settings, _left_out)
    say(*store.problems)
    if not rows:
        say(f"nothing to export; {file} was not changed.")
        return REJECTED
    write(file, rows)
    for row in rows:
        print(f"exported {row['module_name']}: {row['provenance']['target']}")
    return OK


def _left_out(sentence: str) -> None:
    print(f"left out: {sentence}", file=sys.stderr)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401  # the targets' files are imported
    except ImportError:
        raise CommandError("torch is not installed; run `pip install 'pytest-kernelllm[torch]'`.") from None


def _package(options: argparse.Namespace, folder: Path) -> int:
    license, version = options.license or "other", 1 if options.version is None else options.version
    name = options.name or re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    if not re.fullmatch(r"[a-z][-a-z0-9]*[a-z0-9]", name):
        raise CommandError(f"{name!r} is not a valid package name; set one such as my-kernels with --name.")
    if not re.fullmatch(r"[\w.+-]+", license) or version < 1:
        raise CommandError(
            "--license takes an identifier such as apache-2.0, --version a number of at least 1."
        )
    targets = _targets(options.only)
    _need_torch()
    from pytest_kernelllm.beside.export.choose import NotExported, choose
    from pytest_kernelllm.beside.export.folder import write
    from pytest_kernelllm.beside.export.layout import VARIANT, render
    from pytest_kernelllm.beside.export.provenance import STATEMENT, Package
    from pytest_kernelllm.beside.export.signature import ENVELOPE, sign

    store = Store(Path.cwd(), settings_of(options).store)
    records, exports = list(store.verdicts), []
    for target in targets:
        try:
            exports.append(choose(Path.cwd(), target, records))
        except NotExported as error:
            _left_out(str(error))
    say(*store.problems)
    if not exports:
        say(f"nothing to export; {folder} was not changed.")
        return REJECTED
    files = render(Package(name, version, license), exports)
    if options.sign:
        files[ENVELOPE] = sign(files[f"{VARIANT}/{STATEMENT}"], Path(options.sign))
    write(folder, files)
    for each in exports:
        print(f"exported {each.layer}: {each.target.id}")
    return OK


def _targets(named: list[str]) -> list[Target]:
    paths = [Path(name) for name in named if name and Path(name).exists()]
    one_by_one = [find_target(name) for name in named if Path(name) not in paths]
    if paths or not named:
        one_by_one += scan(paths or [Path()], Path.cwd()).targets
    return list({target.id: target for target in one_by_one}.values())
