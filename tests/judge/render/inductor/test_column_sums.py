"""Kernels that sum along rows and along columns: what they write, and what is refused."""

import ast

import pytest

from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.inductor.column_sums import with_column_sums
from kernelllm_judge.render.inductor.program import Assign, Launch
from kernelllm_judge.render.inductor.wrapper import read_program

TEXT = """
triton_per_fused_0 = async_compile.triton('triton_per_fused_0', '''
@triton_heuristics.persistent_reduction(
    size_hints={'x': 8192, 'r0_': 64},
    reduction_hint=ReductionHint.INNER,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'ws_ptr': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32'}},
    inductor_meta={'grid_type': 'MixOrderReductionGrid', 'RSPLIT_SIZE': 32},
)
@triton.jit
def triton_per_fused_0(in_ptr0, out_ptr0, ws_ptr, xnumel, r0_numel, XBLOCK: tl.constexpr, RSPLIT_SIZE: tl.constexpr, NUM_STAGES: tl.constexpr):
    r0_numel = 64
    R0_BLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * RSPLIT_SIZE
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = tl.full([R0_BLOCK], True, tl.int1)[None, :]
    accum0 = tl.full([R0_BLOCK], 0, tl.float32)[None, :]
    accum1 = tl.full([R0_BLOCK], 0, tl.float32)[None, :]
    split_size = min(RSPLIT_SIZE, xnumel - xoffset)
    for _ in tl.range(0, split_size, XBLOCK, num_stages=NUM_STAGES):
        xmask = xindex < xnumel
        x0 = xindex
        xindex += XBLOCK
        tmp0 = tl.load(in_ptr0 + (r0_index + 64*x0), xmask, other=0.0)
        tl.store(out_ptr0 + (x0), tl.sum(tmp0, 1)[:, None], xmask)
        tmp1 = tl.sum(tmp0, 0)
        tmp2 = accum0 + tmp1
        accum0 = tmp2
        tmp3 = tl.sum(tmp0 * tmp0, 0)
        accum1 = accum1 + tmp3
    tl.store(ws_ptr + (tl.program_id(0) + 0 * tl.num_programs(0)) * r0_numel + r0_index, accum0, r0_mask)
    tl.store(ws_ptr + (tl.program_id(0) + 1 * tl.num_programs(0)) * r0_numel + r0_index, accum1, r0_mask)
''', device_str='cuda')

def call(args):
    x, = args
    args.clear()
    x_size = x.size()
    s0 = x_size[0]
    buf0 = empty_strided_cuda((s0, ), (1, ), torch.float32)
    workspace_0 = empty_strided_cuda((128*math.floor(31/32 + (1/32)*s0), ), (1, ), torch.float32)
    triton_per_fused_0.run(x, buf0, workspace_0, s0, 64, stream=raw_stream0)
    buf1 = workspace_0[0 * ((31 + s0) // 32) * (64) : (0 + 1) * ((31 + s0) // 32) * (64)].view((31 + s0) // 32, 64).sum(dim=0)
    buf2 = workspace_0[1 * ((31 + s0) // 32) * (64) : (1 + 1) * ((31 + s0) // 32) * (64)].view((31 + s0) // 32, 64).sum(dim=0).view([1, 64])
    del workspace_0
    return (buf0, buf1, buf2, )
"""


def changed(*changes):
    text = TEXT
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return with_column_sums(read_program(text))


def written(program):
    """The steps in words: what is allocated, and what each launch is given."""
    return [
        f"{step.name} = {ast.unparse(step.value)}"
        if isinstance(step, Assign)
        else f"{step.kernel}({', '.join(map(ast.unparse, step.arguments))})"
        for step in program.steps
    ]


def test_each_sum_has_its_own_parts():
    assert written(changed())[1:] == [
        "buf0 = empty_strided_cuda((s0,), (1,), torch.float32)",
        "workspace_0_0 = empty_strided_cuda(((s0 + 31) // 32, 64), (64, 1), torch.float32)",
        "workspace_0_1 = empty_strided_cuda(((s0 + 31) // 32, 64), (64, 1), torch.float32)",
        "triton_per_fused_0(x, buf0, workspace_0_0, workspace_0_1, s0, 64)",
        "buf1 = empty_strided_cuda((64,), (1,), torch.float32)",
        "triton_red_column_sums_64(workspace_0_0, buf1, 64, (s0 + 31) // 32)",
        "buf2 = empty_strided_cuda((1, 64), (64, 1), torch.float32)",
        "triton_red_column_sums_64(workspace_0_1, buf2, 64, (s0 + 31) // 32)",
    ]


def test_rows_past_the_last_one_are_not_added():
    text = ast.unparse(changed().kernels["triton_per_fused_0"].function)
    assert "tl.sum(tl.where(xmask, tmp0 * tmp0, 0), 0)" in text
    assert "tl.sum(tmp0, 1)" in text


def test_where_no_row_is_past_the_last_one_none_is_left_out():
    program = changed(("        xmask = xindex < xnumel\n", ""), (", xmask", ", None"))
    assert "xmask" not in ast.unparse(program.kernels["triton_per_fused_0"].function)


def test_there_is_a_program_for_each_part():
    program = changed(("'RSPLIT_SIZE': 32", "'RSPLIT_SIZE': 128"))
    (launch,) = [s for s in program.steps if isinstance(s, Launch) and s.kernel == "triton_per_fused_0"]
    assert [ast.unparse(size) for size in launch.grid] == ["(s0 + 127) // 128"]
    assert "min(128, xnumel - xoffset)" in ast.unparse(program.kernels["triton_per_fused_0"].function)


def test_a_sum_has_the_dtype_that_the_text_gives_it():
    steps = written(changed((".sum(dim=0).view([1, 64])", ".sum(dim=0).view([1, 64]).to(torch.bfloat16)")))
    assert "buf2 = empty_strided_cuda((1, 64), (64, 1), torch.bfloat16)" in steps


def test_a_kernel_of_the_texts_own_is_not_taken_for_the_sums():
    program = changed(("triton_per_fused_0", "triton_red_column_sums_64"))
    assert {"triton_red_column_sums_64", "triton_red_column_sums_64_"} <= program.kernels.keys()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("0 * tl.num_programs(0)", "tl.num_programs(0)"), "is not understood"),
        (("'RSPLIT_SIZE': 32", "'RSPLIT_SIZE': 48"), "takes 48 rows a program, which is no power of two"),
        (("'RSPLIT_SIZE': 32", "'RSPLIT_SIZE': '32'"), "needs a launch grid of kind"),
    ],
)  # fmt: skip
def test_other_text_is_refused(change, why):
    with pytest.raises(RenderError, match=why.replace("(", r"\(")):
        changed(change)
