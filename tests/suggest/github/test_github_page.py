"""An artifact's page is for people: it may be there, as a file, and is not read."""

import pages
import pytest

from pytest_kernelllm.report.json import write_report
from pytest_kernelllm.suggest.github.artifact import PAGE, read_artifact
from pytest_kernelllm.suggest.github.errors import SuggestionRefused


@pytest.fixture
def folder(tmp_path):
    write_report(tmp_path / "artifact" / "report.json", pages.report())
    return tmp_path / "artifact"


def test_whatever_the_page_holds_is_not_read(folder):
    (folder / PAGE).write_bytes(b"\xff<script>")
    artifact = read_artifact(folder)
    assert artifact.report == pages.report() and artifact.patch is None


def test_a_link_or_a_folder_is_no_page(folder):
    (folder / PAGE).symlink_to("/etc/passwd")
    with pytest.raises(SuggestionRefused, match="neither its report, its page, its SARIF file nor a patch"):
        read_artifact(folder)
    (folder / PAGE).unlink()
    (folder / PAGE).mkdir()
    with pytest.raises(SuggestionRefused, match="neither its report, its page, its SARIF file nor a patch"):
        read_artifact(folder)
