# ruff: noqa: SIM905 (words are easier to read and to sort than quoted strings)
"""Lists the files that a worker may reach: system programs, Python, torch, Triton and GPU devices.

To be called in the fork server after its imports, because the folders of all loaded modules are included.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kernelllm_judge.isolation.landlock import DEVICE, READ, RUN, Allowed

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/opt/cuda")
"""Programs, libraries and headers: readable and executable."""

SETTINGS = """
    /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/alternatives /etc/localtime /etc/timezone
    /etc/passwd /etc/group /etc/nsswitch.conf /etc/os-release /etc/nvidia /etc/nvidia-container-runtime
""".split()
"""What libraries read. Not all of /etc: it has password hashes and keys, and the user may be root."""

KERNEL = """
    /sys/bus /sys/class /sys/dev /sys/devices /sys/fs/cgroup /sys/kernel/mm /sys/module /proc/driver
    /proc/sys /proc/cpuinfo /proc/meminfo /proc/devices /proc/modules /proc/filesystems /proc/stat
    /proc/version /proc/loadavg /proc/uptime
""".split()
"""What the kernel reports about the machine. Not all of /proc, which has other processes' command lines;
not all of /sys, which has root's traces."""

PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

GPU_FOLDERS = ("/usr/local/nvidia", "/run/nvidia/driver", "/usr/local/cuda")


def reachable(*, gpu: bool) -> tuple[Allowed, ...]:
    """Returns all files that a worker may reach besides its scratch folder and its own entry in /proc.

    Args:
        gpu: include the folders of driver and toolkit; the devices come from ``gpu_devices``.
    """
    programs = {*SYSTEM, *_python(), *_compilers()}
    if gpu:
        programs |= {*GPU_FOLDERS, *_libraries()}
    found = [Allowed(path, RUN) for path in _topmost(programs)]
    found += [Allowed(path, READ) for path in (*SETTINGS, *KERNEL)]
    found += [Allowed(path, DEVICE) for path in PLAIN_DEVICES]
    return tuple(entry for entry in found if Path(entry.path).exists())


def gpu_devices(left_out: Collection[str] = (), devices: Path = Path("/dev")) -> list[Allowed]:
    """Returns the NVIDIA devices that exist now, but for those ``left_out`` by name; some appear only when CUDA is first used."""
    found = [path for name in ("nvidia*", "dxg") for path in devices.glob(name)]
    return [Allowed(str(path), DEVICE) for path in found if path.name not in left_out]


def other_gpus(uuid: str, driver: Path = Path("/proc/driver/nvidia")) -> frozenset[str]:
    """Returns the names of the devices of all GPUs but the one that ``uuid`` names; none if the driver does not tell."""
    names = {}
    for file in driver.glob("gpus/*/information"):
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError):
            return frozenset()
        lines = (line.partition(":") for line in text.splitlines())
        told = {name: value.strip() for name, _, value in lines}
        names[told.get("GPU UUID")] = f"nvidia{told.get('Device Minor')}"
    return frozenset(name for other, name in names.items() if uuid in names and other != uuid)


def _topmost(paths: Iterable[str]) -> list[str]:
    """Returns the paths that do not lie in another one."""
    kept: list[str] = []
    for path in sorted(paths):
        if not kept or not path.startswith(kept[-1] + os.sep):
            kept.append(path)
    return kept


def _python() -> Iterator[str]:
    """Yields Python's installation, folders with installed packages, and packages loaded from elsewhere.

    Any other folder on the import path may be a project's: of those, only loaded packages are included.
    """
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield from _within(prefix)
    for entry in filter(None, sys.path):
        if any(Path(entry).glob("*.dist-info")):
            yield from _within(entry)
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})  # not getattr: a module may compute its attributes
        path, file = names.get("__path__"), names.get("__file__")
        if path is not None:
            yield from (os.path.realpath(folder) for folder in path)
        elif isinstance(file, str):
            yield os.path.realpath(file)


def _compilers() -> Iterator[str]:
    """Yields the C compiler that Triton would use, which may lie outside the system's folders."""
    for name in (os.environ.get("CC"), "gcc", "clang"):
        if name and (program := shutil.which(name)):
            folder = Path(program).resolve().parent
            yield from _within(str(folder.parent if folder.name == "bin" else folder))


def _libraries() -> Iterator[str]:
    for name in ("LD_LIBRARY_PATH", "CUDA_HOME"):
        for folder in os.environ.get(name, "").split(os.pathsep):
            if Path(folder).is_absolute():
                yield from _within(folder)


def _within(folder: str) -> Iterator[str]:
    """Yields the folder; if a home folder lies in it, only the usual parts of an installation."""
    path = Path(os.path.realpath(folder))
    if any(home.is_relative_to(path) for home in _homes()):
        parts = ("bin", "lib", "lib64", "include", "pyvenv.cfg")
        yield from (str(path / part) for part in parts)
    else:
        yield str(path)


def _homes() -> list[Path]:
    """Returns the user's home and other folders with personal files; symlinks resolved."""
    known = ["/home", "/root", "/tmp", "/var"]
    with contextlib.suppress(KeyError):
        known.append(pwd.getpwuid(os.getuid()).pw_dir)
    return [Path(os.path.realpath(folder)) for folder in known]
