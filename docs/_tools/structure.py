"""Prints how large the packages are and how their folders depend on each other: ``make structure``.

A folder is a package or a folder directly inside one; folders below belong to it. An arrow leads from a folder to another one that
some module in it imports. In a circle are folders, or modules directly inside a package, that reach each other along imports.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import grimp

PACKAGES = ("kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm")


def arrows(root: Path, *, modules: bool = False) -> Counter[tuple[str, str]]:
    """How many imports are behind each arrow; with ``modules``, those directly inside a package count as folders of their own."""

    def place(name: str) -> str:
        parts = name.split(".")[:2]
        return ".".join(parts if modules or root.joinpath(*parts).is_dir() else parts[:1])

    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found = Counter(
        (place(module), place(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    )
    return Counter({arrow: count for arrow, count in found.items() if len(set(arrow)) == 2})


def circles(found: Counter[tuple[str, str]]) -> list[list[str]]:
    """The sets of places that reach each other."""
    reached = {place: {place} for arrow in found for place in arrow}
    for _ in reached:
        for start, end in found:
            for goals in reached.values():
                if start in goals:
                    goals.add(end)
    rings = {frozenset(b for b in reached[a] if a in reached[b]) for a in reached}
    return sorted(sorted(ring) for ring in rings if len(ring) > 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrows", action="store_true", help="list them")
    root = Path(__file__).parents[2]
    found = arrows(root)
    print(f"{'':24}{'lines':>8}{'modules':>9}{'folders':>9}{'arrows inside':>15}{'arrows out':>12}")
    for package in PACKAGES:
        files = list((root / package).rglob("*.py"))
        lines = sum(len(file.read_bytes().splitlines()) for file in files)
        folders = {folder for arrow in found for folder in arrow if folder.split(".")[0] == package}
        ends = [(start.split(".")[0] == package, end.split(".")[0] == package) for start, end in found]
        inside, out = ends.count((True, True)), ends.count((True, False))
        print(f"{package:24}{lines:>8}{len(files):>9}{len(folders):>9}{inside:>15}{out:>12}")
    rings = circles(arrows(root, modules=True))
    print(f"arrows in all: {len(found)}; circles: {len(rings)}", *map(" ".join, rings), sep="\n")
    if parser.parse_args().arrows:
        for (start, end), count in sorted(found.items()):
            print(f"{start} -> {end}  {count}")


if __name__ == "__main__":
    main()
