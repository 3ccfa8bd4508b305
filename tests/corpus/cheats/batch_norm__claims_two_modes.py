# family: the file itself
# trick: A second domain claims train mode, for the statistics of eval mode.
# rule: supports
# static check: no
# proof: none, this module normalises alike in both modes

import torch
import triton
import triton.language as tl

SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", 6, 40))},
        "dims": {"n": (1, 8192)},
        "attributes": {
            "weight": ("float32", (6,)),
            "bias": ("float32", (6,)),
            "running_mean": ("float32", (6,)),
            "running_var": ("float32", (6,)),
        },
        "training": False,
        "grad": False,
    },
    {
        "inputs": {"x": ("float32", ("n", 6, 40))},
        "dims": {"n": (1, 8192)},
        "attributes": {
            "weight": ("float32", (6,)),
            "bias": ("float32", (6,)),
            "running_mean": ("float32", (6,)),
            "running_var": ("float32", (6,)),
        },
        "training": True,
        "grad": False,
    },
)


@triton.jit
def batch_norm_kernel(
    x_ptr, mean_ptr, var_ptr, weight_ptr, bias_ptr, out_ptr, channels, length, eps, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    channel = plane % channels
    scale = tl.load(weight_ptr + channel) / tl.sqrt(tl.load(var_ptr + channel) + eps)
    mean = tl.load(mean_ptr + channel)
    bias = tl.load(bias_ptr + channel)
    index = tl.arange(0, BLOCK)
    mask = index < length
    x = tl.load(x_ptr + plane * length + index, mask=mask)
    tl.store(out_ptr + plane * length + index, (x - mean) * scale + bias, mask=mask)


def forward(self, x):
    n, channels, length = x.shape
    out = torch.empty_like(x)
    batch_norm_kernel[(n * channels,)](
        x,
        self.running_mean,
        self.running_var,
        self.weight,
        self.bias,
        out,
        channels,
        length,
        self.eps,
        BLOCK=triton.next_power_of_2(length),
    )
    return out
