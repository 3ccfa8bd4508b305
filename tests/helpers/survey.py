"""The survey's table: of which modules of ``tests/data/survey`` the embedded generator makes no candidate, and why."""

from functools import cache
from pathlib import Path

from loading import pinned

from kernelllm_judge.core.records import Completion, Target
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

PROJECT = Path(__file__).parents[1] / "data" / "survey"

LEFT = "The code leaves `aten.{}` to PyTorch; a kernel module may leave only matrix multiplications, convolutions, attention and topk to it"
VIEWS = "it computes nothing: what it returns are views of its inputs and weights"
LIBRARY = "nothing but library calls is left after fusion"
SENTENCES = {
    "from_torch.py::BatchNorm2d": "it changes `running_mean` in place",
    "from_torch.py::Bilinear": LEFT.format("_trilinear"),
    "from_torch.py::CrossMapLRN2d": (
        'torch.export cannot trace it (Attempted to set the storage of a tensor on device "cpu" to a storage on '
        'different device "meta". This is no longer allowed; the devices must match)'
    ),
    "from_torch.py::CTCLoss": (
        "torch.export cannot trace it (the shape of what `aten._ctc_loss.Tensor` gives depends on values of its tensors)"
    ),
    "from_torch.py::AdaptiveAvgPool3d": f"{LIBRARY} (aten._adaptive_avg_pool3d)",
    "from_torch.py::EmbeddingBag": LEFT.format("_embedding_bag"),
    "from_torch.py::Flatten": VIEWS,
    "from_torch.py::FractionalMaxPool2d": "it draws random numbers (aten.rand.default)",
    "from_torch.py::GaussianNLLLoss": "torch.export cannot trace it (what it does depends on values of its tensors)",
    "from_torch.py::Identity": VIEWS,
    "composed.py::AttentionWithDropout": "it draws random numbers (dropout in attention) at "
    "tests/data/survey/composed.py:276, `return F.scaled_dot_product_attention(q.relu(), k, v, dropo…`",
    "composed.py::Median": f"{LIBRARY} (aten.median.dim)",
    "composed.py::OddNames": "torch.export cannot trace it (a part of the module has a name that it cannot write)",
    "composed.py::SmoothedInWindows": LEFT.format("avg_pool3d"),
    "composed.py::TopK": f"{LIBRARY} (aten.topk)",
    "from_transformers.py::WhisperPositionalEmbedding": VIEWS,
}
"""By id, the generator's whole sentence. Every other module gets a candidate."""

USUAL = "Inductor's fusion, its usual block sizes"
PRODUCTS = "float32 products on tensor cores"
NOTES = {
    "from_torch.py::Linear": PRODUCTS,
    "from_transformers.py::BertSelfAttention": PRODUCTS,
    "from_transformers.py::SegformerDepthWiseConv": "depthwise convolutions as kernels",
}
"""By id, the note of a candidate that is not ``USUAL``."""

JUDGED = (
    "from_torch.py::CrossEntropyLoss",
    "from_torch.py::GLU",
    "from_torch.py::LayerNorm",
    "from_torch.py::MaxPool2d",
    "composed.py::NearestUpsample",
    "composed.py::Attention",
    "composed.py::AttentionWithPast",
    "composed.py::Branches",
    "composed.py::Chain",
    "composed.py::ClassConstants",
    "composed.py::ConvBlock",
    "composed.py::EagerAttention",
    "composed.py::Encoder",
    "composed.py::FeedForward",
    "composed.py::LargestSoFar",
    "composed.py::LargestWithIndex",
    "composed.py::MaskedAttention",
    "composed.py::Neck",
    "composed.py::NumbersInForward",
    "composed.py::Scales",
    "composed.py::SharedActivation",
    "composed.py::Sorted",
    "composed.py::Structures",
    "composed.py::Tower",
    "composed.py::TopTwoOfGates",
    "composed.py::TwoLayerGRU",
    "from_transformers.py::LlamaRMSNorm",
    "from_transformers.py::MixtralTopKRouter",
    "from_transformers.py::SwinAttention",
)
"""Whose candidates are judged, in Triton's interpreter; each is accepted."""


@cache
def targets() -> dict[str, Target]:
    """Every module of the survey by its id."""
    files = ("from_torch.py", "composed.py", "from_transformers.py")
    return {target.id: target for name in files for target in scan_file(PROJECT / name, PROJECT).targets}


def made(name: str) -> tuple[LiveTarget, Completion]:
    """What the embedded generator makes of a module: one completion."""
    target = targets()[name]
    live = pinned(PROJECT, target)
    ((_, completion),) = InductorGenerator().generate([Request(target, (0,), lambda: live)])
    return live, completion
