"""The rules a candidate is judged by: every rejection names one of them. ``docs/trust.md`` prints this table."""

from __future__ import annotations

RULES = {
    "screen": "reading the source finds nothing that a kernel has no use for",
    "supports": "SUPPORTS is of the published form and covers a case of the target",
    "compile": "every kernel compiles for the named GPU architecture",
    "load": "the kernel module can be imported",
    "run": "every call ends, without an error, in time and with the process alive",
    "types": "outputs nest like the original's, with its exact types, dtypes, shapes, strides and device",
    "values": "outputs are right for fresh values in the same memory, several times over",
    "twin": "outputs are right for inputs that differ from earlier ones in a few values only",
    "sizes": "outputs are right at the corners of the declared sizes and at primes",
    "attributes": "outputs are right with other values of the attributes that SUPPORTS leaves open",
    "stress": "outputs are right for scaled, shifted, sparse, equal and extreme inputs",
    "nonfinite": "NaN and infinities in the inputs come out where the original has them",
    "gradients": "gradients are right, where the target asks for them",
    "inputs kept": "inputs, parameters and buffers hold the same bytes after the call",
    "aliasing": "outputs share memory with inputs and with each other only where the original's do",
    "guards": "nothing is written before or after any tensor",
    "fresh address": "the same values at other addresses give right outputs",
    "repeat": "outputs stay right when programs run in another order, or beside other work",
    "launches": "every call that is watched or timed by itself, repeated ones too, launches Triton kernels of the candidate's own",
    "decoy": "outputs are wrong when the kernels are left out, at a question where a wrong output shows",
    "torch's share": "torch does no more of the work than views, allocation, casts and small glue",
    "device time": "the candidate's own kernels take most of the GPU's time that no vendor library takes",
    "recheck": "outputs of calls in the timed loop, chosen in secret, are right",
    "clocks": "the worker's clock and the judge's own agree",
    "roofline": "no call is faster than this GPU can move the bytes it must",
    "speed": "the lower end of the speedup's interval clears the threshold",
}
"""By name, what holds for every accepted candidate."""

SWITCHABLE = frozenset(RULES) - {"supports", "load", "run", "speed"}
"""Rules that ``Policy.disabled`` may switch off, to show that each catches something no other does."""
