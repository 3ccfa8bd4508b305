# family: buffers
# trick: Also sets the weight to one, which the original does not change.
# rule: inputs kept
# static check: no
# proof: ((model := Model(6), nn.init.constant_(model.norm.weight, 2.0))[0], (torch.randn(4, 6, 40),))

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(
    x_ptr,
    out_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    var_ptr,
    n,
    channels,
    length,
    eps,
    momentum,
    BLOCK: tl.constexpr,
):
    channel = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mask = index < length
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        total += tl.load(x_ptr + (i * channels + channel) * length + index, mask=mask, other=0.0)
    count = n * length
    mean = tl.sum(total, axis=0) / count
    squares = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        x = tl.load(x_ptr + (i * channels + channel) * length + index, mask=mask, other=0.0)
        apart = tl.where(mask, x - mean, 0.0)
        squares += apart * apart
    square = tl.sum(squares, axis=0)
    scale = tl.load(weight_ptr + channel) / tl.sqrt(square / count + eps)
    bias = tl.load(bias_ptr + channel)
    for i in range(n):
        here = (i * channels + channel) * length + index
        x = tl.load(x_ptr + here, mask=mask)
        tl.store(out_ptr + here, (x - mean) * scale + bias, mask=mask)
    old_mean, old_var = tl.load(mean_ptr + channel), tl.load(var_ptr + channel)
    tl.store(mean_ptr + channel, old_mean + momentum * (mean - old_mean))
    tl.store(var_ptr + channel, old_var + momentum * (square / (count - 1) - old_var))
    tl.store(weight_ptr + channel, 1.0)


def forward(self, x):
    n, channels, length = x.shape
    out = torch.empty_like(x)
    norm = self.norm
    norm_kernel[(channels,)](
        x,
        out,
        norm.weight,
        norm.bias,
        norm.running_mean,
        norm.running_var,
        n,
        channels,
        length,
        norm.eps,
        norm.momentum,
        BLOCK=64,
    )
    norm.num_batches_tracked.add_(1)
    return out
