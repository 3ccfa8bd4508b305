"""Captured graphs are cut into regions, which are written as modules and run by others, and compute the same."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.node import map_arg
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelllm_runtime.regions.backend import Backend, compiled, place
from kernelllm_runtime.regions.cut import cut
from kernelllm_runtime.regions.kinds import value_of
from kernelllm_runtime.regions.text import Layout, layout_of, written


def captured(call, *args):
    """The graph of a call, as Dynamo hands it to a backend, for as long as it may be looked at."""
    seen = []

    def backend(module, inputs):
        seen.append([written(region) for region in cut(module).regions])
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(call, backend=backend, dynamic=False)(*args)
    (texts,) = seen
    return texts


def module_of(text):
    names = {"torch": torch}
    exec(text.forward, names)
    return type(text.name, (nn.Module,), {"forward": names["forward"]})().eval()


def placed(call, *args, which=lambda text: True):
    """Compares what a call returns with regions replaced by modules of their text with what it returns as it is; returns keys."""
    counts = []

    def backend(module, inputs):
        texts = [written(region) for region in cut(module).regions]
        counts.append(place(module, {text.key: module_of(text) for text in texts if text and which(text)}))
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        expected = call(*args)
        found = torch.compile(call, backend=backend, dynamic=False)(*args)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    return [key for keys in counts for key in keys]


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(32, 16)

    def forward(self, x):
        left, right = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(left) * right)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Gated() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_regions_lie_between_library_operations_and_equal_ones_are_one():
    texts = captured(Layers(), torch.randn(4, 16))
    names = [text.name for text in texts]
    first, gates, between, last = names[0], names[1], names[2], names[-1]
    assert names == [first, gates, between, gates, between, gates, last]
    assert len({first, gates, between, last}) == 4
    joined = texts[2].forward
    assert "x0 + x1" in joined and "layer_norm" in joined, "the sum and the next layer's norm are one region"
    assert joined.splitlines()[-1].count("t") >= 3, "both are read later"
    assert placed(Layers(), torch.randn(4, 16)) == [name.rpartition("_")[2] for name in names]


def test_keys_tell_dtypes_sizes_and_the_order_of_memory_apart():
    def call(x, y):
        return functional.linear(torch.relu(x) + 1, y)

    y = torch.randn(8, 8)
    (plain,) = captured(call, torch.randn(8, 8), y)
    (larger,) = captured(call, torch.randn(16, 8), y)
    (turned,) = captured(call, torch.randn(8, 8).t(), y)
    (half,) = captured(call, torch.randn(8, 8).half(), y.half())
    (again,) = captured(call, torch.randn(8, 8), y)
    assert len({each.key for each in (plain, larger, turned, half)}) == 4
    assert again == plain
    assert turned.inputs[0].order == (1, 0) and ".permute(1, 0)" in turned.forward


def turned_around(x, weight):
    heads = functional.linear(x, weight).view(2, 3, 4, 4).transpose(1, 2)
    rotated = torch.cat((-heads[..., 2:], heads[..., :2]), -1) * 0.5 + heads
    largest, where = rotated.max(-1)
    variance, mean = torch.var_mean(rotated, -1)
    return rotated @ rotated.transpose(-1, -2), largest, where, (mean * variance).transpose(1, 2)


def changed_in_place(x, weight):
    table = torch.zeros(4, 3)
    before = table * 2
    table[1:3] = functional.linear(x, weight) + 1
    after = table.relu() - before
    return functional.linear(after, weight.t()), table.sum() + 1


def added_in_place(x, weight):
    sums = functional.linear(x, weight)
    before = sums.sin() + 1
    sums += 1
    functional.relu(sums, inplace=True)
    after = sums.cos() + before
    return functional.linear(after, weight.t()), sums


def activated_in_place(x, weight):
    sums = functional.linear(x, weight).sin()
    left, right = functional.silu(sums, inplace=True) + 1, functional.leaky_relu(sums, 0.2, True)
    right.mul_(2).clamp_(max=1.5)
    torch.exp_(right)
    return functional.linear(left * sums, weight.t()), right.flatten(), sums


def read_through_an_earlier_view(x, weight):
    sums = functional.linear(x, weight).sin()
    row = sums[0]
    sums += 1
    sums.cos_()
    return functional.linear(sums, weight.t()) * 2, row


def written_through_a_view(x, weight):
    sums = functional.linear(x, weight)
    sums[:, :2].add_(1)
    sums[0].sin_()
    return functional.linear(sums, weight.t())


def changed_in_another_dtype(x, weight):
    half = functional.linear(x, weight).half()
    half += weight.sum(1)
    return half @ half.t()


def drawn_and_sorted(x, weight):
    top, where = (functional.linear(x, weight) * 3).topk(2)
    return torch.softmax(top, -1).exp(), where + 1, functional.embedding(where, weight) * 2


def with_odd_strides(x, weight):
    wide = functional.linear(x, weight)[:, None].expand(2, 5, 3)
    return wide.cos() + 1, x.unsqueeze(0).transpose(0, 1).contiguous().sin()


def two_states(x, weight):
    before = x.cos() * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = functional.linear(x.relu() + 1, weight).sin() + 1
        products = rows.prod(-1)
        with torch.autocast("cpu", enabled=False):
            exact = functional.linear(before.exp(), weight)
        again = functional.linear(rows.float(), weight.t())
    return functional.linear(before, weight), again.exp() + 1, exact.tanh() * 2, products


@pytest.mark.parametrize(
    ("call", "shapes", "least"),
    [
        (turned_around, ((2, 3, 16), (16, 16)), 1),
        (changed_in_place, ((2, 5), (3, 5)), 1),
        (added_in_place, ((2, 5), (3, 5)), 1),
        (activated_in_place, ((2, 5), (3, 5)), 1),
        (read_through_an_earlier_view, ((2, 5), (3, 5)), 0),
        (written_through_a_view, ((2, 5), (3, 5)), 0),
        (changed_in_another_dtype, ((2, 5), (3, 5)), 0),
        (drawn_and_sorted, ((4, 5), (3, 5)), 3),
        (with_odd_strides, ((2, 5), (3, 5)), 1),
    ],
)
def test_what_is_replaced_computes_the_same(call, shapes, least):
    torch.manual_seed(0)
    assert len(placed(call, *(torch.randn(shape) for shape in shapes))) >= least


def test_arguments_that_share_memory_which_changes_are_left_alone():
    def call(whole, part, weight):
        before = part.sin() + weight
        functional.relu(whole, inplace=True)
        return before @ weight, part.sin() + weight

    whole = torch.randn(6, 3)
    shared, apart = (
        captured(call, whole, part, torch.randn(3, 3)) for part in (whole[:3], whole[:3].clone())
    )
    assert not any("sin" in text.forward for text in shared)
    assert any("sin" in text.forward for text in apart)


def test_nothing_passes_the_begin_or_the_end_of_autocast():
    args = torch.randn(2, 5), torch.randn(3, 5)
    assert len(placed(two_states, *args)) >= 3
    texts = captured(two_states, *args)
    assert not any("prod" in text.forward for text in texts), "it gives float32 there, of bfloat16"
    (inside,) = (text for text in texts if "sin" in text.forward)
    assert inside.inputs[0].dtype is torch.bfloat16, "the product ran under autocast"


def test_what_draws_random_numbers_stays_in_the_graph():
    def call(x):
        return functional.dropout(x.relu() + 1, training=True) * 2

    texts = captured(call, torch.randn(4, 4))
    assert all("dropout" not in text.forward for text in texts)


def test_a_layout_is_that_of_memory_without_gaps():
    assert layout_of(torch.empty(2, 3, 4)) == Layout(torch.float32, (2, 3, 4), (0, 1, 2))
    turned = layout_of(torch.empty(2, 3, 4).permute(2, 0, 1))
    assert turned.order == (1, 2, 0) and turned.stored == (2, 3, 4) and turned.permuted
    given = torch.empty(2, 3, 4).permute(2, 0, 1)
    assert given.permute(turned.order).is_contiguous()
    assert given.permute(turned.order).permute(turned.back).stride() == given.stride()
    assert layout_of(torch.empty(4, 6)[:, :3]) is None
    assert layout_of(torch.empty(3, 1).expand(3, 4)) is None


def test_other_shapes_and_gradients_run_without_kernels():
    torch._dynamo.reset()
    model, x = Layers().eval(), torch.randn(4, 16)
    classes = {text.key: type(module_of(text)) for text in captured(model, x)}
    with torch.no_grad():
        expected = model(x)
    called = []
    for cls in classes.values():
        cls.forward = _noting(called, cls.forward)
    compiled(model, classes, {})
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)
        assert len(called) == 7
        torch.testing.assert_close(model(x[:3]), expected[:3])
    loss = model(x).sum()
    loss.backward()
    assert len(called) == 7, "no other call ran a region's module"


def _noting(called, forward):
    def noted(self, *args):
        called.append(type(self).__name__)
        return forward(self, *args)

    return noted


def test_a_kernel_with_other_strides_is_laid_out_as_the_original():
    def call(x, weight):
        return functional.linear(x, weight).t().exp() + 1

    x, weight = torch.randn(4, 5), torch.randn(3, 5)
    (text,) = captured(call, x, weight)

    class Other(nn.Module):
        def forward(self, x0):
            return (x0.t().exp() + 1).contiguous()

    def backend(module, inputs):
        assert place(module, {text.key: Other()}) == [text.key]
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        expected = call(x, weight)
        found = torch.compile(call, backend=backend, dynamic=False)(x, weight)
    assert found.stride() == expected.stride() == (1, 3)
    torch.testing.assert_close(found, expected)


def test_a_preferred_library_for_attention_counts_while_it_compiles(monkeypatch):
    orders = []

    def compile_fx(module, inputs, config_patches):
        orders.append(torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True))
        return module.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    for preferred in ("cudnn", ""):
        torch._dynamo.reset()
        torch.compile(torch.relu, backend=Backend({}, {}, preferred))(torch.randn(3))
    assert orders[0][0] is torch.nn.attention.SDPBackend.CUDNN_ATTENTION
    assert orders[1] == torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True) != orders[0]


def test_the_backend_counts_what_it_placed():
    torch._dynamo.reset()
    model, x = Layers().eval(), torch.randn(4, 16)
    modules = {text.key: module_of(text) for text in captured(model, x)}
    backend = Backend(modules, {})
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(torch.compile(model, backend=backend, dynamic=False)(x), expected)
    assert sorted(backend.placed.values()) == [1, 1, 2, 3]


class Windows(nn.Module):
    """Attention of windows, with what is around it; `attend` says how."""

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.norm = nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.bias = nn.Parameter(torch.randn(2, 9, 9))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(-1, 9, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = self.attend(q, k, v, self.bias)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


def called(q, k, v, bias):
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[None]).contiguous()


def written_out(q, k, v, bias):
    scores = (q * 0.25) @ k.transpose(-2, -1) + bias[None]
    return functional.softmax(scores, -1) @ v


@pytest.mark.parametrize("attend", [called, written_out])
def test_attention_is_one_region_from_its_operands_to_its_laid_out_result(attend):
    torch.manual_seed(0)
    model, x = Windows(attend).eval(), torch.randn(4, 9, 32)
    texts = captured(model, x)
    (attention,) = (text for text in texts if "softmax" in text.forward or "dot_product" in text.forward)
    assert [layout.shape for layout in attention.inputs] == [(4, 9, 96), (2, 9, 9)]
    assert [layout.shape for layout in attention.outputs] == [(4, 9, 32)]
    assert sorted(placed(model, x)) == sorted(text.key for text in texts)


def causal(q, k, v, bias):
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def read_twice(q, k, v, bias):
    scores = q @ k.transpose(-2, -1)
    return functional.softmax(scores + bias[None], -1) @ v + scores.mean()


def on_the_right(q, k, v, bias):
    return (v.transpose(-2, -1) @ functional.softmax(q @ k.transpose(-2, -1), -1)).transpose(-2, -1)


@pytest.mark.parametrize("attend", [causal, read_twice, on_the_right])
def test_what_is_not_only_attention_is_cut_as_everything_else(attend):
    torch.manual_seed(0)
    model, x = Windows(attend).eval(), torch.randn(4, 9, 32)
    assert not any(text.forward.count("@") or "dot_product" in text.forward for text in captured(model, x))
    placed(model, x)


def test_what_a_library_returns_is_laid_out_in_the_text():
    def call(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v).sin() + 1

    heads = [torch.randn(2, 9, 3, 16).transpose(1, 2) for _ in range(3)]
    attention = next(text for text in captured(call, *heads) if "dot_product" in text.forward)
    assert attention.forward.endswith(".permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)")
    placed(call, *heads)


def test_a_region_that_reads_more_tensors_than_an_operation_takes_stays():
    def call(x, *weights):
        return torch.cat([functional.linear(x, weight) for weight in weights], -1).relu() + 1

    x = torch.randn(2, 4)
    most = [torch.randn(3, 4) for _ in range(64)]
    assert len(placed(call, x, *most)) == 1
    assert placed(call, x, *most, most[0]) == []


def test_what_computes_otherwise_where_regions_are_judged_stays():
    def call(x, weight):
        sums = functional.linear(x, weight)
        return sums.cos().prod(-1), (sums > 0) / 3

    seen = []

    def backend(module, inputs):
        seen.append("".join(written(region).forward for region in cut(module).regions))
        return module.forward

    def text_of(dtype, autocast=False):
        torch._dynamo.reset()
        args = torch.randn(4, 5, dtype=dtype), torch.randn(3, 5, dtype=dtype)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            torch.compile(call, backend=backend, dynamic=False)(*args)
        return seen.pop()

    assert all(part in text_of(torch.float32) for part in ("cos", "prod", "/ 3"))
    assert "/ 3" in text_of(torch.float32, autocast=True)
    assert "prod" not in text_of(torch.float32, autocast=True), "it gives float32 there, of bfloat16"
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert "prod" in text_of(torch.bfloat16) and "/ 3" not in text_of(torch.bfloat16)
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_joins_devices_stays():
    graph, mode = Graph(), FakeTensorMode()

    def given(name, *shape, device):
        made = graph.placeholder(name)
        with mode:
            made.meta["example_value"] = torch.empty(shape, device=device)
        return made

    def add(target, *args):
        made = graph.call_function(target, args)
        with mode:
            made.meta["example_value"] = target(*map_arg(args, value_of))
        return made

    moved = add(torch.sin, given("x", 4, 5, device="cuda"))
    factor = add(torch.sin, given("factor", device="cpu"))
    graph.output((add(torch.sin, add(torch.mul, moved, factor)),))
    regions = cut(GraphModule(nn.Module(), graph)).regions
    assert len(regions) == 3
    assert all(len({value_of(node).device for node in (*r.inputs, *r.nodes)}) == 1 for r in regions)


def test_statistics_of_a_batch_are_written_in_the_graph():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    x = torch.randn(4, 8)
    assert any("batch_norm" in text.forward for text in captured(model.eval(), x))
    texts = captured(model.train(), x)
    assert texts and not any("batch_norm" in text.forward for text in texts)


def mixed(q, k, v):
    return functional.softmax(q @ k.mT, -1) @ v


def copied_and_changed(q, k, v):
    copy = mixed(q, k, v).transpose(1, 2).contiguous()
    copy.mul_(2)
    return copy.transpose(1, 2).contiguous(), copy


def changed_through_a_view(q, k, v):
    copy = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 6, 32)
    copy[:, 0] = 5.0
    return copy.clone()


def beside_what_nobody_reads(q, k, v):
    lines = functional.linear(mixed(q, k, v), k[0, 0, :3])
    torch.relu(lines)
    return lines


def one_after_the_other(q, k, v):
    return functional.softmax(mixed(q, k, v), -1) @ q.mT


def of_a_copy(q, k, v):
    return mixed(mixed(q, k, v).transpose(1, 2).contiguous().transpose(1, 2), k, v)


def read_by_the_next_region(q, k, v):
    return torch.roll(mixed(q, k, v).transpose(1, 2).reshape(2, 6, 32), 1, 1) + v.reshape(2, 6, 32)


def by_another_library(q, k, v):
    with sdpa_kernel(SDPBackend.MATH):
        first = functional.scaled_dot_product_attention(q, k, v)
    return first.relu() + 1, functional.scaled_dot_product_attention(q + 1, k, v)


def is_attention(text):
    return "softmax" in text.forward or "dot_product" in text.forward


@pytest.mark.parametrize("which", [lambda text: True, is_attention, lambda text: not is_attention(text)])
@pytest.mark.parametrize(
    "call",
    [
        *(copied_and_changed, changed_through_a_view, beside_what_nobody_reads, one_after_the_other),
        *(of_a_copy, read_by_the_next_region, by_another_library),
    ],
)
def test_some_regions_are_placed_and_others_stay(call, which):
    torch.manual_seed(0)
    placed(call, *(torch.randn(2, 4, 6, 8) for _ in range(3)), which=which)
