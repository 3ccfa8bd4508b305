# family: integers
# trick: Leaves ignored rows out of the sum, but divides by the number of all rows.
# rule: integer inputs
# static check: no
# proof: (Model().eval(), (torch.randn(4, 20), torch.tensor([3, -100, 5, -100])))

import torch
import triton
import triton.language as tl


@triton.jit
def loss_kernel(logits_ptr, labels_ptr, total_ptr, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row * vocab + columns, mask=columns < vocab, other=-float("inf"))
    label = tl.load(labels_ptr + row)
    top = tl.max(logits, axis=0)
    whole = top + tl.log(tl.sum(tl.exp(logits - top), axis=0))
    counts = label != -100
    right = tl.load(logits_ptr + row * vocab + tl.where(counts, label, 0))
    tl.atomic_add(total_ptr, tl.where(counts, whole - right, 0.0))
    tl.atomic_add(total_ptr + 1, 1.0)


def forward(self, logits, labels):
    n, vocab = logits.shape
    total = torch.zeros(2, dtype=torch.float32, device=logits.device)
    loss_kernel[(n,)](logits, labels, total, vocab, BLOCK=triton.next_power_of_2(vocab))
    return total[0] / total[1]
