"""What is remembered between calls, and what makes it be thrown away."""

import pytest
import torch
from adopting import BODY, CHANGES, MODULE, X, kernel_text, ran, used
from torch import nn

from kernelllm_runtime import forms
from kernelllm_runtime.dispatch import _ALIKE
from kernelllm_runtime.pins.texts import Writer
from kernelllm_runtime.watch import watch

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


def known(module: nn.Module):
    """What the dispatcher remembers about a module."""
    return type(module).forward.__kernelllm_dispatcher__.known[id(module)]


def remembered(module: nn.Module) -> int:
    return sum(map(len, known(module).forms.values()))


class Leaf(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_parameter("bias", None)
        self.note = "leaf"


class Tree(nn.Module):
    unit = 1.5

    def __init__(self):
        super().__init__()
        self.one, self.two = Leaf(), Leaf()
        self.same = self.one
        self.register_buffer("table", torch.zeros(2))
        self.register_buffer("tied", self.table)
        self.plain = torch.zeros(4)
        self.items = [1, torch.zeros(5)]
        self.options = type("Options", (), {"depth": 2, "act": torch.tanh})()

    @property
    def computed(self):
        return float("1.25")  # another object each time


PATHS = (
    *("one.weight", "two.weight", "one.note", "one.bias", "table", "plain", "items[0]", "items[1]"),
    *("options.depth", "options.act", "unit", "computed", "one.__class__", "not.there", "items[7]"),
)

SEEN = {
    "an alias replaced": lambda t: setattr(t, "same", Leaf()),
    "a child put in another's place": lambda t: setattr(t, "two", t.one),
    "a child removed": lambda t: delattr(t, "two"),
    "a child set to None": lambda t: setattr(t, "two", None),
    "a parameter where there was none": lambda t: setattr(t.one, "bias", nn.Parameter(torch.ones(3))),
    "a parameter removed": lambda t: delattr(t.two, "weight"),
    "a parameter shadowed": lambda t: vars(t.one).__setitem__("weight", torch.zeros(3)),
    "a tie cut": lambda t: setattr(t, "tied", torch.zeros(2)),
    "an equal value of another type": lambda t: setattr(t.options, "depth", 2.0),
    "a value behind an object": lambda t: setattr(t.options, "act", torch.sin),
    "the object itself": lambda t: setattr(t, "options", None),
    "a class attribute": lambda t: setattr(type(t), "unit", 2.5),
    "a class attribute shadowed": lambda t: setattr(t, "unit", 1.5),
    "a computed value": lambda t: setattr(type(t), "computed", property(lambda self: 1.0)),
    "a computed value that raises": lambda t: setattr(type(t), "computed", property(lambda self: 1 / 0)),
    "a missing name that comes": lambda t: setattr(type(t), "not", 1),
    "an item of a list": lambda t: t.items.__setitem__(0, 2),
    "an item that comes": lambda t: t.items.extend(range(9)),
    "mode of a child": lambda t: t.two.eval(),
    "class of a child": lambda t: setattr(t.two, "__class__", Tree),
    "a name on a child": lambda t: setattr(t.two, "forward", print),
    "a hook on a child": lambda t: t.two.register_forward_pre_hook(print),
    "a backward hook on a child": lambda t: t.two.register_full_backward_hook(print),
}


@pytest.mark.parametrize("change", SEEN)
def test_a_watch_sees(change) -> None:
    tree = type("Tree", (Tree,), {"unit": 1.5, "computed": Tree.computed})()
    unchanged = watch(tree, PATHS).unchanged
    assert unchanged(tree) is not None and unchanged(tree) is not None
    SEEN[change](tree)
    assert unchanged(tree) is None


def test_a_watch_gives_each_tensor_once_as_it_is_now() -> None:
    tree = Tree()
    unchanged = watch(tree, PATHS).unchanged
    assert {id(t) for t in unchanged(tree)} == {
        id(t) for t in (tree.one.weight, tree.two.weight, tree.table, tree.plain, tree.items[1])
    }
    tree.plain = tree.items[1] = torch.ones(1)
    tree.one.weight = nn.Parameter(torch.ones(7))
    assert sorted(len(t) for t in unchanged(tree)) == [1, 1, 2, 3, 7]


def test_a_class_and_plain_items_are_compared_without_writing_their_texts(monkeypatch) -> None:
    tree = Tree()
    tree.config = {"one": 1, "two": 2.0}
    unchanged = watch(tree, ("value:__class__", "value:config")).unchanged
    with monkeypatch.context() as patched:
        patched.delattr(Writer, "shown")
        assert unchanged(tree) is not None
    tree.config["two"] = float("2")
    assert unchanged(tree) is not None, "an equal number is the same to a kernel"
    for key, value in (("one", True), ("one", 2), ("three", 3)):
        tree.config[key] = value
        assert unchanged(tree) is None
        del tree.config[key]
    tree.config["one"] = 1
    assert unchanged(tree) is None, "their order matters"


def test_a_watch_does_not_need_names_that_are_not_public(monkeypatch) -> None:
    tree, watched = Tree(), watch(Tree(), ())
    monkeypatch.delattr("torch.compiler._is_compiling_flag")
    assert watched.unchanged(tree) is None


def test_forms_seen_before_are_not_decided_again(module) -> None:
    calls = [torch.randn(4, 8), torch.randn(5, 8), torch.randn(17, 8), torch.randn(5, 8).double()]
    for _ in range(3):
        for x, inside in zip(calls, (True, True, False, False), strict=True):
            assert used(module, x) == inside
    with torch.no_grad(), torch.autocast("cpu"):
        assert not used(module, calls[0])
    assert used(module, calls[0])
    assert remembered(module) == len(calls) + 1
    before = known(module)
    module.eps = 0.25
    assert not used(module, X)
    assert known(module) is not before and remembered(module) == 1


def test_strides_without_end_are_not_remembered_without_end(module) -> None:
    for gap in range(9, 30):
        assert not used(module, torch.randn(4, gap)[:, :8])
    assert remembered(module) == _ALIKE
    assert used(module, X)


def test_calls_that_no_form_can_describe_are_decided_each_time(module) -> None:
    module.weight.data = torch.ones(1, 8)[0]
    for _ in range(3):
        assert not used(module, module.weight)  # the same tensor twice in one call
    assert remembered(module) == 0


def test_a_value_that_is_another_object_each_time_is_decided_each_time(cls) -> None:
    cls.act = property(lambda self: lambda x: x, lambda self, value: None)
    module = cls().eval().requires_grad_(False)
    assert not used(module, X)
    assert not used(module, X)


def test_one_tensor_in_two_places(write) -> None:
    body = BODY.replace("mask=None", "mask=0")
    cls = write(kernel_text(body), MODULE.replace("mask: Optional[torch.Tensor] = None", "mask=0"))
    module = cls().eval().requires_grad_(False)
    y = X.clone()
    for second in (X, y, X):
        assert not ran(module(X, 1.0, second))
    assert ran(module(X, 1.0, 0))


@pytest.mark.parametrize("change", CHANGES)
def test_without_pytorchs_own_guards_changes_are_noticed_as_well(module, change, monkeypatch) -> None:
    monkeypatch.setattr(forms, "_Guards", None)
    assert used(module, X) and used(module, X)
    CHANGES[change](module)
    assert not used(module, X)


def test_without_pytorchs_own_guards_the_surroundings_count_as_well(module, monkeypatch) -> None:
    monkeypatch.setattr(forms, "_Guards", None)
    assert used(module, X) and used(module, X)
    with torch.autocast("cpu"):
        assert not used(module, X)
    assert torch.func.vmap(module)(X[None]).max() < 50
    assert not used(module, torch._neg_view(X))
    assert not used(module, X.double())
    module.requires_grad_(True)
    assert not used(module, X)
    with torch.no_grad():
        assert used(module, X)
