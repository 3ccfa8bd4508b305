"""KernelAgent's verification by this judge.

Its platforms are made of parts with names (https://github.com/meta-pytorch/KernelAgent, ``triton_kernel_agent/platform``, May 2026)::

    from triton_kernel_agent.platform.registry import registry
    registry.register("verifier", "kernelllm", KernelLLMVerifier)

and then ``verifier: kernelllm`` in its configuration.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelllm_judge.formats.process import judged_apart

VERDICT = "kernelllm-verdict.json"


class KernelLLMVerifier:
    """Takes the place of KernelAgent's ``KernelVerifier``: a kernel passes that is accepted, at sizes and values of the judge's."""

    def __init__(
        self,
        log_dir: Path | None = None,
        logger: logging.Logger | None = None,
        dtypes: Sequence[str] = ("bfloat16",),
    ) -> None:
        """Prepares; ``log_dir`` and ``logger`` are those that KernelAgent gives to its parts.

        Args:
            log_dir: gets the verdict as ``kernelllm-verdict.json``.
            logger: is told what was decided.
            dtypes: what the problem's parameters and inputs are cast to; bfloat16 is what KernelAgent's own tests and benchmark
                take, and none leaves them.
        """
        self._log_dir, self._dtypes = log_dir, tuple(dtypes)
        self._logger = logger or logging.getLogger(__name__)

    def verify(self, kernel_code: str, problem_file: Path, test_code: Sequence[str] = ()) -> bool:
        """Judges a kernel for a problem.

        Args:
            kernel_code: a text with a function ``kernel_function``, whose parameters are named after inputs, weights and
                settings.
            problem_file: in KernelBench's form.
            test_code: KernelAgent's own tests, which are not run: the judge compares with the problem itself.

        Returns:
            Whether it was accepted. What is undecided, or cannot be judged, does not pass; the log says why.
        """
        with tempfile.TemporaryDirectory(prefix="kernelagent-") as folder:
            candidate = Path(folder) / "kernel.py"
            candidate.write_text(kernel_code, encoding="utf-8")
            try:
                verdict = judged_apart(Path(problem_file), candidate, timing=False, dtypes=self._dtypes)
            except RuntimeError as error:
                self._logger.error("%s", error)
                return False
        if self._log_dir is not None:
            text = json.dumps(verdict.to_json(), indent=1, allow_nan=False)
            (self._log_dir / VERDICT).write_text(text, encoding="utf-8")
        self._logger.log(logging.INFO if verdict.accepted else logging.ERROR, "%s", verdict.in_words())
        return verdict.accepted
