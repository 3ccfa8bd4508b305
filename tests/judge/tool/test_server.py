"""The MCP server, called by the MCP package's own client over standard input and output."""

import os
import sys

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from relu_kernels import ANSWER, REFERENCE

WRONG = ANSWER.replace("+ 1.0", "+ 2.0")
NOISY = REFERENCE.replace("return torch.relu(x) + 1", 'print("called"); return torch.relu(x) + 1')


async def _converse(folder):
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "kernelllm_judge.cli", "mcp", "--device=cpu"],
        cwd=folder,
        env=environ,
    )
    with (folder / "errors.txt").open("w") as errors:
        async with stdio_client(server, errlog=errors) as streams, ClientSession(*streams) as session:
            greeting = await session.initialize()

            async def call(tool, **arguments):
                result = await session.call_tool(tool, arguments)
                return result.structured_content if not result.is_error else result.content[0].text

            return {
                "name": greeting.server_info.name,
                "tools": [tool.name for tool in (await session.list_tools()).tools],
                "nothing yet": await call("explain"),
                "wrong": await call("judge", reference="reference.py", candidate=WRONG),
                "explained": await call("explain"),
                "right": await call("judge", reference="reference.py", candidate="answer.py"),
                "no verdict": await call("explain", verdict={"verdict": "fine"}),
                "gone": await call("judge", reference="gone.py", candidate="answer.py"),
                "ranking": await call("rank", reference="reference.py", candidates=[WRONG, "answer.py"]),
            }


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "reference.py").write_text(NOISY)
    (folder / "answer.py").write_text(ANSWER)
    answers = anyio.run(_converse, folder)
    return answers | {"errors": (folder / "errors.txt").read_text()}


def test_it_greets_with_its_three_tools(said):
    assert said["name"] == "kernelllm-judge"
    assert said["tools"] == ["judge", "explain", "rank"]


def test_a_wrong_kernel_is_rejected_with_a_reproducer(said):
    wrong = said["wrong"]
    assert (wrong["verdict"], wrong["rule"], wrong["kernel"]) == ("rejected", "values", "")
    assert (
        "Rejected by the rule `values`" in wrong["script"] and "import kernelllm_judge" not in wrong["script"]
    )
    assert wrong["reproducer"].endswith(".py")


def test_the_last_verdict_is_explained(said):
    assert said["nothing yet"].endswith("There is no verdict yet; call judge first.")
    assert said["explained"]["result"].startswith("rejected: output 0 ")
    assert "What to do: The arithmetic is wrong for ordinary inputs" in said["explained"]["result"]
    assert "That is no verdict" in said["no verdict"]


def test_a_right_kernel_comes_with_its_certificate_and_its_module(said):
    right = said["right"]
    assert (right["verdict"], right["reproducer"], right["timing"]) == ("accepted", None, [])
    assert right["addresses"]["bounds"] == "proven for the domain"
    assert "def forward(self, x)" in right["kernel"]


def test_candidates_are_ranked(said):
    ranking = said["ranking"]["ranking"]
    assert [(each["number"], each["verdict"]) for each in ranking] == [(1, "accepted"), (0, "rejected")]
    assert ranking[0]["candidate"] == "answer.py"


def test_what_cannot_be_read_is_one_sentence(said):
    assert said["gone"].endswith("There is no file gone.py.")


def test_what_the_reference_prints_goes_to_standard_error(said):
    assert "imported\n" in said["errors"] and "called\n" in said["errors"]
