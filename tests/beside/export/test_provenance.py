"""What an export says of itself: the statement, its signature, and the command that checks both without a network."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)
from exported import make_project
from kernels._rust import Digest, DigestAlgorithm, Metadata
from kernels.verify import VerificationResult, verify_variant
from projects import GOOD, LAYERS
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from kernelllm_judge.core.records import Certificate, Check
from pytest_kernelllm.cli import main
from pytest_kernelllm.store import Store

VARIANT = Path("build") / "torch-cuda"
SHOWN = Certificate("proven for the domain", "proven for the domain", "sampled", 7, 0.25)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELLLM_STORE_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    made = make_project(tmp_path, monkeypatch)
    made.verified()
    keep(made, addresses=SHOWN, isolation="full")
    for name in ("own", "other"):
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (tmp_path / f"{name}.pem").write_bytes(private)
        (tmp_path / f"{name}.pub.pem").write_bytes(public)
    return made


def keep(project, **changes):
    """Puts the verdict in the store again, with other fields."""
    [record] = Store(project.root).verdicts
    Store(project.root).verdicts.add(replace(record, verdict=replace(record.verdict, **changes)))


def all_bytes(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_statement_names_every_file_and_what_was_shown(project) -> None:
    assert project.export().returncode == 0
    content = json.loads((project.root / "hf" / VARIANT / "provenance.json").read_text())
    assert content["_type"] == "https://in-toto.io/Statement/v1"
    written = {path.name for path in (project.root / "hf" / VARIANT).iterdir()}
    assert {each["name"] for each in content["subject"]} == written - {"provenance.json", "metadata.json"}
    verdict = content["predicate"]["layers"]["Scale"]["verdict"]
    assert verdict["verdict"] == "accepted" and verdict["isolation"] == "full"
    assert verdict["certificate"] == {
        "bounds": "proven for the domain",
        "races": "proven for the domain",
        "outputs": "sampled",
    }
    assert verdict["environment"]["arch"] == "sm_90" and verdict["rules"]["bounds"] >= 1


def test_what_is_measured_anew_changes_no_byte(project) -> None:
    assert project.export("--sign", "own.pem").returncode == 0
    (project.root / "hf").rename(project.root / "before")
    check = Check("output 0 at n=13", True, 1e-7, 2e-6)
    again = replace(SHOWN, launches=9, seconds=3.0)
    keep(project, seconds=99.0, durations={"judging": 98.0}, checks=(check,), addresses=again)
    assert project.export("--sign", "own.pem").returncode == 0
    assert all_bytes(project.root / "hf") == all_bytes(project.root / "before")


def test_an_export_is_checked_with_and_without_a_key(project, capsys) -> None:
    assert project.export("--sign", "own.pem").returncode == 0
    capsys.readouterr()
    assert main(["provenance", "hf", "--key", "own.pub.pem"]) == 0
    told = capsys.readouterr()
    assert told.out == (
        "Scale: accepted on Triton's interpreter, compiled for sm_90, torch 2.13.0, triton 3.7.1; "
        "bounds proven for the domain; races proven for the domain; outputs sampled\n"
    )
    assert "signed by the key" in told.err
    assert main(["provenance", f"hf/{VARIANT}"]) == 0, "as kernels downloads it"
    assert "no --key was named" in capsys.readouterr().err
    assert main(["provenance", "hf", "--key", "other.pub.pem"]) == 1
    assert "other.pub.pem did not sign" in capsys.readouterr().err


def forge(variant):
    """Makes the files agree again, as whoever changes them can, who does not have the key."""
    text = (variant / "provenance.json").read_text().replace('"sampled"', '"proven for the domain"')
    (variant / "provenance.json").write_text(text)


CHANGES = {
    "a changed kernel": (lambda v: (v / "scale_kernel.py").write_text("x"), "scale_kernel.py was changed"),
    "a file too many": (lambda v: (v / "more.py").write_text("x"), "more.py was added"),
    "a file too few": (lambda v: (v / "scope.py").unlink(), "scope.py is missing"),
    "other metadata": (lambda v: (v / "metadata.json").write_text("{}"), "metadata.json was changed"),
    "a statement of no form": (lambda v: (v / "provenance.json").write_text("{}"), "is no statement"),
    "another verdict": (forge, "is not the statement that"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_is_named(project, capsys, change) -> None:
    assert project.export("--sign", "own.pem").returncode == 0
    capsys.readouterr()
    alter, sentence = CHANGES[change]
    alter(project.root / "hf" / VARIANT)
    key = ["--key", "own.pub.pem"] if change == "another verdict" else []
    assert main(["provenance", "hf", *key]) == 1
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error


def test_others_can_read_the_envelope(project) -> None:
    assert project.export("--sign", "own.pem").returncode == 0
    data = json.loads((project.root / "hf" / "provenance.dsse.json").read_text())
    public = load_pem_public_key((project.root / "own.pub.pem").read_bytes())
    key = SSlibKey.from_crypto(public, keyid=data["signatures"][0]["keyid"])
    envelope = Envelope.from_dict(data)
    assert envelope.verify([key], 1)
    assert envelope.payload == (project.root / "hf" / VARIANT / "provenance.json").read_bytes()


@pytest.mark.parametrize("name", ["own.pub.pem", "nowhere.pem"])
def test_what_is_no_private_key_is_one_sentence(project, name) -> None:
    done = project.export("--sign", name)
    assert done.returncode == 2 and name in done.stderr and "Traceback" not in done.stderr
    assert not (project.root / "hf").exists()


def test_the_libraries_own_digest_and_signature_file_fit(project) -> None:
    """Its own check accepts signatures of its project's workflows only; what comes before and after that holds here."""
    assert project.export("--sign", "own.pem").returncode == 0
    variant = project.root / "hf" / VARIANT
    assert verify_variant(variant) == VerificationResult.SignatureBundleMissing()
    (variant / "metadata.json.sigstore").write_text("{}")
    assert isinstance(verify_variant(variant), VerificationResult.SignatureBundleInvalid)
    digest = Metadata.read_from_file(variant / "metadata.json").digest
    digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    assert main(["provenance", "hf", "--key", "own.pub.pem"]) == 0


@pytest.mark.slow
def test_two_projects_that_are_judged_apart_give_the_same_bytes(tmp_path) -> None:
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name / "project"
        (folder / "candidates").mkdir(parents=True)
        (folder / "layers.py").write_text(LAYERS)
        (folder / "candidates" / "Scale.py").write_text(GOOD)
        (folder / "pyproject.toml").write_text(
            '[tool.kernelllm]\ngenerator = "files"\ncandidates_dir = "candidates"\ndevice = "cpu"\n'
        )
        run = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--kernelllm-only",
            "layers.py",
        ]
        subprocess.run(run, cwd=folder, check=True, capture_output=True)
        export = [sys.executable, "-m", "pytest_kernelllm.cli", "export", "--to", "hf-kernels", "kernels"]
        subprocess.run(export, cwd=folder, check=True, capture_output=True)
        found.append(all_bytes(folder / "kernels"))
        shutil.rmtree(folder / ".kernelllm")
    assert found[0] == found[1]
