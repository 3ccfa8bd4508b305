"""The processes below one, by the system's own account."""

from pathlib import Path


def descendants(pid):
    """Returns all processes below one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(stat.parent.name)] = (int(fields[1]), fields[0])
    found = [pid]
    for parent in found:
        found += [child for child, (above, _) in parents.items() if above == parent]
    return found[1:]


def cmdline(pid):
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def running(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
