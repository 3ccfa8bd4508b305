"""The rule ``recheck``: what calls in the timed loop, chosen in secret, compute is right."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.rules.rule import Rule, TimedCall
from kernelllm_judge.rules.types import Types
from kernelllm_judge.run.backward import check_gradients, check_incoming
from kernelllm_judge.run.comparison import check_outputs


@dataclass(frozen=True)
class Recheck(Rule):
    """Timed calls compute the right outputs, too: what is timed is what was judged."""

    name = "recheck"
    says = "outputs and gradients of calls in the timed loop, chosen in secret, are right"
    stage = "timing"
    device = "cuda"

    share: float = 0.3
    """Share of singly timed calls whose outputs are checked. Loops always are, but for modules that update their buffers."""

    def check_timed_call(self, call: TimedCall) -> None:
        """Compares what randomly chosen calls gave, large outputs in random places; a candidate cannot know which.

        What is equal, bit by bit, to what was right before is right.
        """
        judging = call.run.judging
        if call.looped and call.run.prepared.updates.names:
            return  # each call but the first finds what the one before has left in its buffers
        if not call.looped:
            if judging.rng.random() >= self.share:
                return
            Types().check_run(call.run)
        run, context = call.run, "in the timed loop, "
        given = [buffer for buffer, _ in run.uploaded.outputs]
        if call.backward is not None:
            check_incoming(judging, run.prepared, call.backward, self.name)
            given += call.backward.written
        if call.right.holds(run.prepared.probe, given):
            return
        copies = call.right.copies(given)
        check_outputs(judging, run.uploaded, run.prepared, self.name, context, sampled=True)
        if call.backward is not None:
            check_gradients(judging, run.prepared, call.backward, self.name, context)
        call.right.keep(run.prepared.probe, given, copies)
