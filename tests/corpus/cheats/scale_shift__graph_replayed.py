# family: the clock
# trick: A CUDA graph of torch's operations is replayed, beside a kernel that copies.
# rule: device time | torch's share
# static check: yes
# device: cuda

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=index < n), mask=index < n)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out


GRAPHS = {}


def forward(self, x):
    key = (x.data_ptr(), x.shape, self.weight.data_ptr())
    if key not in GRAPHS:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch._C._DisableTorchDispatch():
            result = (x.double() * self.weight.double() + self.bias.double()).float()
        GRAPHS[key] = (graph, result)
    graph, result = GRAPHS[key]
    graph.replay()
    return copied(result)
