# style: Names and comments that sound like cheating, and are not.

import torch
import triton
import triton.language as tl

# This kernel does not import os, subprocess or ctypes; it never calls eval(), exec() or __import__.
# TODO(cache): torch.cuda.Stream and torch.compile were slower here. Never patch Event.elapsed_time!
CACHE_LINE = 32
stream_width = 4 * CACHE_LINE


@triton.jit
def cached_stream_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, total, width, BLOCK: tl.constexpr):
    thread = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    system = thread < total
    cache = tl.load(x_ptr + thread, mask=system)
    stream = tl.load(weight_ptr + thread % width, mask=system)
    process = tl.load(bias_ptr + thread % width, mask=system)
    tl.store(out_ptr + thread, cache * stream + process, mask=system)


def forward(self, x):
    """Does no global, subprocess, socket or file work; `open` is only a word."""
    exec_time = x.numel()
    open_blocks = triton.cdiv(exec_time, stream_width)
    global_cache = torch.empty_like(x)
    cached_stream_kernel[(open_blocks,)](
        x, self.weight, self.bias, global_cache, exec_time, x.size(1), BLOCK=stream_width
    )
    return global_cache
