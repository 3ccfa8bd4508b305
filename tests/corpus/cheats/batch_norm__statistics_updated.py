# family: inputs changed
# trick: Eval mode, and it moves the running mean.
# rule: inputs kept
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def batch_norm_kernel(
    x_ptr, mean_ptr, var_ptr, weight_ptr, bias_ptr, out_ptr, channels, length, eps, BLOCK: tl.constexpr
):
    plane = tl.program_id(0)
    channel = plane % channels
    scale = tl.load(weight_ptr + channel) / tl.sqrt(tl.load(var_ptr + channel) + eps)
    shift = tl.load(bias_ptr + channel) - tl.load(mean_ptr + channel) * scale
    index = tl.arange(0, BLOCK)
    mask = index < length
    x = tl.load(x_ptr + plane * length + index, mask=mask)
    tl.store(out_ptr + plane * length + index, x * scale + shift, mask=mask)


def launch(self, x, mean, var):
    n, channels, length = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(length)
    batch_norm_kernel[(n * channels,)](
        x, mean, var, self.weight, self.bias, out, channels, length, self.eps, BLOCK=block
    )
    return out


@triton.jit
def nudge_kernel(mean_ptr, CHANNELS: tl.constexpr):
    index = tl.arange(0, CHANNELS)
    mask = index < 6
    tl.store(mean_ptr + index, tl.load(mean_ptr + index, mask=mask) * 0.9, mask=mask)


def forward(self, x):
    out = launch(self, x, self.running_mean, self.running_var)
    nudge_kernel[(1,)](self.running_mean, CHANNELS=8)
    return out
