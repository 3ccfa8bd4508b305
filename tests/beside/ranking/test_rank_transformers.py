"""Models of transformers with random weights are ranked, and their markers are taken by pytest."""

import json
import subprocess
import sys

import pytest
import torch
from projects import COMMAND
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, WhisperConfig, WhisperModel

from kernelllm_judge.core.records import TensorSpec
from kernelllm_judge.target.live import load_target
from pytest_kernelllm import rank
from pytest_kernelllm.beside.ranking.integers import KnownIntegers
from pytest_kernelllm.cli import main
from pytest_kernelllm.discover.scan import scan_file

FACTORIES = '''
import torch
from torch import nn
from transformers import DPTConfig, DPTForDepthEstimation, LlamaConfig, LlamaForCausalLM


def depth():
    layers = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 4}
    levels = {"backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 12, 16, 20], "fusion_hidden_size": 16}
    config = DPTConfig(image_size=32, patch_size=8, **layers, **levels)
    return DPTForDepthEstimation(config).eval(), {"pixel_values": torch.randn(2, 3, 32, 32)}


def llama():
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2
    )
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(50, (2, 16))}


class Normed(nn.Module):
    """Its constructor takes a module, which no source can name."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, scale=1.0):
        return torch.tanh(self.inner(x) * scale) * x


class Merge(nn.Module):
    def forward(self, levels):
        fine, (coarse,), none = levels
        return torch.tanh(fine) * torch.sigmoid(coarse) + len(none)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.merge = Merge()

    def forward(self, x):
        return self.merge([x, (x + 1,), []])


def pyramid():
    return Pyramid().eval(), torch.randn(4, 16, 32)


def wrapped():
    return Normed(nn.GELU()).eval(), (torch.randn(4, 32),), {"scale": 2.0}


def nothing():
    return nn.Linear(3, 3)


def fails():
    return 1 / 0


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no such head")


def model_fails():
    return Fails(), torch.ones(3)


number = 3
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "factories_to_rank.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("factories_to_rank", "markers_of_rank"):
        sys.modules.pop(name, None)


def test_a_llama_of_8_billion_parameters_is_ranked_without_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def factory():
        config = LlamaConfig(
            vocab_size=128256, intermediate_size=14336, num_key_value_heads=8, num_hidden_layers=32
        )
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
        assert model.lm_head.weight.is_meta and sum(p.numel() for p in model.parameters()) > 8e9
        return model, torch.randint(1000, (1, 2048))

    found = rank(factory)
    first = found.modules[0]
    assert first.cls.endswith("LlamaRMSNorm") and first.calls == 65
    assert set(first.paths) == {
        "model.layers.*.input_layernorm",
        "model.layers.*.post_attention_layernorm",
        "model.norm",
    }
    assert 0.1 < first.own_headroom_ms / found.ms < 0.2
    rows = {row.cls.rpartition(".")[2]: row for row in found.modules}
    assert rows["LlamaMLP"].roofline > 0.9 and rows["LlamaMLP"].share > 0.5  # matrix multiplications limit it
    assert rows["LlamaAttention"].own_headroom_ms > 0  # the rotation, which is no module
    assert rows["Linear"].own_headroom_ms == 0
    assert not found.measured and "H100" in found.gpu
    assert sum(row.own_headroom_ms for row in found.modules) == pytest.approx(found.headroom_ms)


def test_a_whisper_is_ranked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def factory():
        config = WhisperConfig(
            d_model=64,
            encoder_layers=2,
            decoder_layers=2,
            max_source_positions=100,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
        )
        inputs = {"input_features": torch.randn(1, 80, 200), "decoder_input_ids": torch.randint(50, (1, 5))}
        return WhisperModel(config).eval(), inputs

    found = rank(factory)
    calls = {row.cls.rpartition(".")[2]: row.calls for row in found.modules}
    assert calls["WhisperEncoderLayer"] == calls["WhisperDecoderLayer"] == 2


@pytest.mark.parametrize("masked", [False, True])
def test_what_decides_by_masks_and_positions_needs_no_data(tmp_path, monkeypatch, masked):
    monkeypatch.chdir(tmp_path)

    def factory():
        config = LlamaConfig(vocab_size=50, hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
        model = LlamaForCausalLM(config).eval()
        assert model.lm_head.weight.is_meta
        mask = {"attention_mask": torch.ones(2, 16, dtype=torch.int64).tril()} if masked else {}
        return model, {"input_ids": torch.randint(50, (2, 16)), "use_cache": False, **mask}

    found = rank(factory)
    assert not found.notes
    assert next(row.calls for row in found.modules if row.cls.endswith("LlamaRMSNorm")) == 3


def test_known_values_are_those_of_a_run_with_data():
    def decide(device):
        x = torch.arange(12, device=device).view(3, 4)
        row = x[1]
        row.add_(100)
        shown = [x[1].tolist(), x[0].sum().item(), bool((row > 0).all()), len((x[0] > 1).nonzero())]
        x[2].copy_(torch.randn(4, device=device))
        return shown, x

    with KnownIntegers():
        without, x = decide("meta")
        with pytest.raises(NotImplementedError):  # nobody knows what was written to the memory that it shares
            x[1].tolist()
    assert without == decide("cpu")[0] == [[104, 105, 106, 107], 6, True, 2]


def test_a_model_that_looks_at_its_data_runs_on_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Looks(nn.Module):
        def forward(self, x):
            return x.sigmoid() * x if x.sum() > 0 else x

    found = rank(lambda: (Looks(), torch.ones(1000)))
    assert found.modules[0].operations == 4  # the sum and the comparison, too
    assert "does not run without" in " ".join(found.notes)


def test_written_markers_are_targets_with_the_sizes_of_the_run(project):
    from factories_to_rank import llama

    found = rank(llama)
    found.write_markers("markers_of_rank.py")
    with pytest.raises(FileExistsError):
        found.write_markers("markers_of_rank.py")
    scanned = scan_file(project / "markers_of_rank.py", project)
    names = ["LlamaRMSNorm", "LlamaAttention", "LlamaMLP", "LlamaDecoderLayer"]
    assert [target.name for target in scanned.targets] == names
    for target in scanned.targets:
        (case,) = load_target(project, target).cases
        assert case.dtype == "float32"
        if target.name in ("LlamaRMSNorm", "LlamaMLP"):
            assert case.sizes == {"batch": 2, "seq": 16}
            assert case.domain.dims == {"batch": (1, 2), "seq": (1, 16)}
        else:
            assert case.domain.inputs["position_embeddings[0]"].shape[-1] == 8
            assert case.domain.inputs["position_ids"].dtype == "int64"
    text = " ".join((project / "markers_of_rank.py").read_text().replace("\n#", "").split())
    assert (
        "Its marker leaves out `past_key_values`, which is a DynamicCache, so kernels will not run in" in text
    )
    assert "Not marked, because it returns a DynamicCache: LlamaModel at model" in text


def test_modules_that_take_lists_are_marked(project):
    from factories_to_rank import depth

    rows = {row.cls.rpartition(".")[2]: row for row in rank(depth).modules}
    takers = ("DPTNeck", "DPTReassembleStage", "DPTFeatureFusionStage", "DPTDepthEstimationHead")
    assert all(rows[name].marker for name in takers), [rows[name].reason for name in takers]


def test_the_written_inputs_hold_the_lists_of_the_run(project):
    from factories_to_rank import pyramid

    rank(pyramid).write_markers("markers_of_rank.py")
    targets = scan_file(project / "markers_of_rank.py", project).targets
    (case,) = load_target(project, next(each for each in targets if each.name == "Merge")).cases
    assert case.domain.inputs == {
        "levels.__class__": "list",
        "levels[0]": TensorSpec("float32", ("batch", "seq", 32)),
        "levels[1][0]": TensorSpec("float32", ("batch", "seq", 32)),
        "levels[2].__class__": "list",
    }


def test_a_module_whose_arguments_cannot_be_written_is_taken_from_the_factory(project):
    from factories_to_rank import wrapped

    found = rank(wrapped)
    found.write_markers("markers_of_rank.py")
    (target,) = scan_file(project / "markers_of_rank.py", project).targets
    live = load_target(project, target)
    assert type(live.build(live.cases[0]).inner) is nn.GELU
    assert live.cases[0].domain.inputs["scale"] == 2.0


def kernelllm(path, *arguments):
    return subprocess.run(
        [*COMMAND, "scan", *arguments], cwd=path, capture_output=True, text=True, check=False
    )


def test_the_command_prints_a_table_or_json_and_writes_markers(project, capsys):
    options = ["--model", "factories_to_rank:llama", "--write", "markers_of_rank.py", "--arch", "sm_80"]
    done = kernelllm(project, *options)
    assert done.returncode == 0, done.stderr
    assert "LlamaRMSNorm" in done.stdout and "A100 80GB SXM (sm_80)" in done.stdout
    written = (project / "markers_of_rank.py").read_text()
    assert main(["scan", *options]) == 2
    assert "add --overwrite" in capsys.readouterr().err
    (project / "markers_of_rank.py").write_text("")
    assert main(["scan", *options, "--overwrite", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["modules"][0]["calls"] == 5 and content["measured"] is False
    assert (project / "markers_of_rank.py").read_text() == written


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "factories_to_rank"], "module:factory"),
        (["--model", "no_such_module:llama"], "No module named 'no_such_module'"),
        (["--model", "gone.py:llama"], "there is no file gone.py"),
        (["--model", "factories_to_rank:gone"], "has no gone"),
        (["--model", "factories_to_rank:number"], "has no function number"),
        (["--model", "factories_to_rank:nothing"], "returns Linear; it must return (model, example)"),
        (["--model", "factories_to_rank:fails"], "ZeroDivisionError: division by zero (factories_to_rank.py, line"),
        (["--model", "factories_to_rank:model_fails"], "ValueError: no such head"),
        (["--model", "factories_to_rank:llama", "--arch", "sm_87"], "The roofline of sm_87 is not known"),
        (["--model", "factories_to_rank:llama", "--arch", "sm_1"], "`arch` cannot be 'sm_1'"),
        (["--write", "markers.py"], "--write needs --model"),
    ],
)  # fmt: skip
def test_what_cannot_be_ranked_is_one_sentence(project, capsys, arguments, sentence):
    assert main(["scan", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error and error.count("\n") == 1


@pytest.mark.slow
def test_pytest_takes_the_markers_and_the_next_ranking_knows_the_kernel(project, capsys):
    assert main(["scan", "--model", "factories_to_rank:llama", "--write", "markers_of_rank.py"]) == 0
    run = [sys.executable, "-m", "pytest", "-q", "--kernelllm-only", "--kernelllm-samples", "1"]
    done = subprocess.run(
        [*run, "--kernelllm-device", "cpu", "-k", "LlamaRMSNorm", "markers_of_rank.py"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    capsys.readouterr()
    assert main(["scan", "--model", "factories_to_rank:llama", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    rows = {row["cls"].rpartition(".")[2]: row for row in content["modules"]}
    assert len(rows["LlamaRMSNorm"]["kernel"]) == 12 and not rows["LlamaMLP"]["kernel"]
