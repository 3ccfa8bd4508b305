"""Parts of ``self`` that a forward reads several times have names."""

import pytest

from kernelllm_judge.render.inductor.named_parts import with_named_parts
from kernelllm_judge.render.inductor.names import Names
from kernelllm_judge.render.inductor.program_text import Allocation

LAUNCH = """kernel[(3,)](
    a,
    self.layers[1].norm.weight,
    self.layers[1].norm.bias,
    self.layers[1].norm.running_mean,
    BLOCK=64,
)"""


def named(*statements, taken=()):
    return list(with_named_parts(statements, Names(taken)))


def test_a_part_is_named_before_its_first_use():
    assert named(
        "a = f(x)", "b = g(a, self.net[1].weight, self.net[1].bias)", "return self.net[1].scale + b"
    ) == [
        "a = f(x)",
        "net_1 = self.net[1]",
        "b = g(a, net_1.weight, net_1.bias)",
        "return net_1.scale + b",
    ]


def test_shorter_parts_are_named_too():
    assert named("a = f(self.b[0].c[1].w, self.b[0].c[1].v, self.b[0].d[0].w)") == [
        "b_0 = self.b[0]",
        "b_0_c_1 = b_0.c[1]",
        "a = f(b_0_c_1.w, b_0_c_1.v, b_0.d[0].w)",
    ]


def test_line_breaks_stay():
    assert named(LAUNCH) == [
        "layers_1_norm = self.layers[1].norm",
        LAUNCH.replace("self.layers[1].norm.", "layers_1_norm."),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "y = f(self.norm.weight, self.norm.bias, self.norm.running_mean)",
        "y = f(self.net[0].weight, self.net[1].weight)",
        "y = f(self[0].weight, self[0].bias)",
        "y = f(self.a.norm.weight, self.a.norm.bias)",
        "y = f(other.net[0].weight, other.net[0].bias)",
        "y = f(self.get_submodule('net.0').weight, self.get_submodule('net.0').bias)",
    ],
)
def test_what_is_short_or_read_once_stays(statement):
    assert named(statement) == [statement]


def test_names_of_the_forward_are_not_taken():
    assert named("y = f(net_1, self.net[1].weight, self.net[1].bias)", taken=["net_1"]) == [
        "net_1_1 = self.net[1]",
        "y = f(net_1, net_1_1.weight, net_1_1.bias)",
    ]


def test_letters_of_several_bytes_are_counted_as_bytes():
    assert (
        named("y = f('ä', self.net[1].weight, self.net[1].bias)")[-1]
        == "y = f('ä', net_1.weight, net_1.bias)"
    )


def test_allocations_stay():
    allocation = Allocation("out = torch.empty", ("(3,)",), ("torch.float32",), "x", ("torch.float32",), True)
    assert named(allocation, "y = f(self.net[1].weight, self.net[1].bias)")[0] is allocation
