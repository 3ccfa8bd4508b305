"""``python -m tests.golden``: compare verdicts and renderings with ``golden.json``; ``--write`` takes today's as the new ones.

``renderings`` holds the hash of every kernel module that the examples, the survey and the stored completions become;
``corpus`` the verdict, stage and rule of every entry of the corpus, with the static check and without it; ``pairs`` those of
the public kernels that ``python -m benchmarks.public_kernels`` cuts out of checkouts. All of it without a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("golden.json")
ROOT = Path(__file__).parents[2]
EXAMPLES = ("llm_blocks", "transformers_layers", "training_blocks")
SAMPLES = 12
"""Programs that Inductor is asked for, for each target of the examples."""

Golden = dict[str, Any]


def main() -> int:
    """Run the command; returns 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what is found instead of comparing")
    parser.add_argument(
        "--part", choices=("renderings", "corpus", "pairs"), action="append", help="only this part"
    )
    parser.add_argument(
        "--pairs", type=Path, metavar="DIR", help="the public pairs; without it they are left out"
    )
    parser.add_argument("--jobs", type=int, default=2, help="candidates judged at once")
    options = parser.parse_args()
    makers: dict[str, Callable[[], Golden]] = {
        "renderings": renderings,
        "corpus": lambda: corpus(options.jobs),
    }
    if options.pairs:
        makers["pairs"] = lambda: pairs(options.pairs, options.jobs)
    kept: dict[str, Golden] = json.loads(FILE.read_text()) if FILE.is_file() else {}
    different = 0
    for part in options.part or makers:
        found = makers[part]()
        for line in differences(kept.get(part, {}), found):
            print(f"{part}: {line}", flush=True)
            different += 1
        kept[part] = found
        print(f"{part}: {len(found)} compared", flush=True)
        if options.write:
            FILE.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    return 1 if different and not options.write else 0


def differences(before: Golden, now: Golden) -> Iterator[str]:
    """Yields a line for each name whose value changed, went or came."""
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield f"{name}: {before.get(name, 'missing')} -> {now.get(name, 'missing')}"


def renderings() -> Golden:
    """Returns the hash of each rendered kernel module, or of the sentence that says why there is none, by its name."""
    sys.path[:0] = [str(ROOT / "tests" / "helpers")]
    import completions
    import survey

    from kernelllm_judge.constructors import Constructors
    from kernelllm_judge.core.records import Completion
    from kernelllm_judge.isolation.isolation import probe_isolation
    from kernelllm_judge.render.render import RenderError, render
    from kernelllm_judge.target.live import LiveTarget, load_target
    from kernelllm_runtime.source.resolve import ProjectSources
    from kernelllm_runtime.source.scan import earlier_hash
    from pytest_kernelllm.discover.scan import scan_file
    from pytest_kernelllm.generate.inductor.generator import InductorGenerator
    from pytest_kernelllm.generate.protocol import Request

    def rendered(completion: Completion, live: LiveTarget, root: Path) -> str:
        if not completion.text:
            return _hash(completion.note)
        # A header names the target's source hash; the one of the version before is kept here, so that only the rest counts.
        earlier = earlier_hash(ProjectSources(root), live.target) or live.target.source_hash
        live = replace(live, target=replace(live.target, source_hash=earlier))
        try:
            candidate = render(completion, live, constructors)
        except RenderError as error:
            return _hash(str(error))
        texts = []
        while candidate:
            texts.append(candidate.source)
            candidate = candidate.next
        return _hash("\n".join(texts))

    found: Golden = {}
    constructors = Constructors(probe_isolation("cpu"))
    for name in survey.targets():
        live, completion = survey.made(name)
        found[f"survey/{name}"] = rendered(completion, live, survey.PROJECT)
    for name, expected in completions.TABLE.items():
        text = (completions.DATA / "completions" / f"{name}.txt").read_bytes().decode()
        live = completions.live_target(expected.target)
        root = (completions.DATA / expected.target.partition("::")[0]).parent
        found[f"completions/{name}"] = rendered(Completion("files", 0, text, "modelnew"), live, root)
    for example in EXAMPLES:
        root = ROOT / "examples" / example
        for file in sorted(root.rglob("*.py")):
            for target in scan_file(file, root).targets:
                live = load_target(root, target)
                request = Request(target, tuple(range(SAMPLES)), lambda live=live: live)
                for _, completion in InductorGenerator().generate([request]):
                    found[f"{example}/{target.id}/{completion.index}"] = rendered(completion, live, root)
    constructors.close()
    return found


def corpus(jobs: int) -> Golden:
    """Returns verdict, stage and rule of each entry of the corpus, with the static check and without."""
    from tests.corpus.corpus import NO_STATIC_CHECK, CorpusJudge
    from tests.corpus.entries import load

    entries, judge = load(), CorpusJudge("cpu", jobs)
    without = judge.judge(entries, NO_STATIC_CHECK)
    full = judge.judge_with_static_check(entries, without)
    return {
        f"{outcome.entry.name}{suffix}": [outcome.status, outcome.stage, outcome.rule]
        for suffix, outcomes in ((" without static check", without), ("", full))
        for outcome in outcomes
    }


def pairs(folder: Path, jobs: int) -> Golden:
    """Returns verdict, stage and rule of each pair in a folder."""
    from pytest_kernelllm.beside.verify.pairs import Judged, find_pairs, verify_all
    from pytest_kernelllm.config.settings import Settings

    found: Golden = {}

    def done(judged: Judged) -> None:
        verdict = judged.verdict
        found[judged.pair.name] = [verdict.verdict, verdict.stage, verdict.rule]

    verify_all(find_pairs(folder), Settings(device="cpu", timing=False, workers=jobs), done)
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
