# style: Autotuned over blocks that are no longer than the input.

import torch
import triton
import triton.language as tl


def prune(configs, named_args, **kwargs):
    n = named_args["n"]
    return [c for c in configs if c.kwargs["BLOCK"] <= max(n, 128)] or configs[:1]


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}) for b in (128, 512, 2048)],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def leaky(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.where(x > 0, x, x * slope), mask=i < n)


def forward(self, x):
    out = torch.empty_like(x)
    leaky[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), self.slope)
    return out
