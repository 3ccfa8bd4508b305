"""Says where a kernel runs less far than its owner may think."""

from __future__ import annotations

from collections.abc import Sequence

from kernelllm_judge.core.kernel_module import KernelModuleError, read_supports
from kernelllm_judge.core.records import Target
from pytest_kernelllm.core.outcome import Outcome, shown


def narrow(target: Target, source: str) -> dict[str, str]:
    """Returns a few words for each way in which a kernel module is narrow, and a sentence that says what to do."""
    try:
        domains = read_supports(source)
    except KernelModuleError:
        return {}
    found: dict[str, str] = {}
    if target.kind != "kernelbench" and not any(low < high for d in domains for low, high in d.dims.values()):
        found["this shape only"] = (
            "At other sizes the original runs; `dims=` of the marker names sizes that may vary."
        )
    if target.trained and not any(domain.grad for domain in domains):
        found["no gradients"] = (
            f"Where gradients are wanted the original runs, and {target.trained}; `backward=True` of the marker asks for both passes."
        )
    return found


def advice(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns what to do about narrow kernels, each sentence once, with the targets that it is about."""
    names: dict[tuple[str, str], list[str]] = {}
    for identity in dict.fromkeys(outcome.target.id for outcome in outcomes):
        used = shown([outcome for outcome in outcomes if outcome.target.id == identity])
        if used is not None and used.candidate is not None:
            for item in narrow(used.target, used.candidate.source).items():
                names.setdefault(item, []).append(used.target.name)
    return [f"{', '.join(own)}: {word}. {sentence}" for (word, sentence), own in names.items()]
