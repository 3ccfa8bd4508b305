"""The test model behind a real ``transformers serve``, through ``pytest --kernelllm``: equal to local, whatever breaks on the way."""

import re
import shutil
from contextlib import ExitStack

import pytest
from serving import SECRET, Proxy, free_port, transformers_serve
from tiny.lessons import MODEL, lessons, why_not_taught
from tiny.project import lay_out

GREEDY = ("--kernelllm-temperature=0", "--kernelllm-samples=1")
CORRECTNESS = ("-k", "correctness")


@pytest.fixture(scope="module", autouse=True)
def taught():
    """The texts that the model knows, by target."""
    if why_not := why_not_taught():
        pytest.fail(why_not)
    return {lesson.target: [answer.text.strip() for answer in lesson.answers] for lesson in lessons()}


@pytest.fixture(scope="module")
def local(taught, tmp_path_factory):
    """What the model writes on this machine when it takes the likeliest token every time, judged."""
    project = lay_out(tmp_path_factory.mktemp("local"))
    model = ("--kernelllm-generator=local", f"--kernelllm-model={MODEL}")
    done = project.run(*model, *GREEDY, *CORRECTNESS)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server's address and the folder that is its model's name; in float32, as the model runs on a CPU here."""
    folder = tmp_path_factory.mktemp("server") / MODEL.name
    shutil.copytree(MODEL, folder)
    with transformers_serve(folder, "--dtype", "float32") as address:
        yield address, folder


@pytest.fixture
def behind(served):
    """Options for the server, and a proxy before it where there are faults."""
    with ExitStack() as stack:

        def options(faults=None):
            url, folder = served
            proxy = Proxy(url, faults)
            stack.callback(proxy.close)
            where = url if faults is None else proxy.url
            return proxy, (
                "--kernelllm-generator=kernelllm",
                f"--kernelllm-endpoint={where}",
                f"--kernelllm-model={folder}",
            )

        yield options


def test_greedy_answers_and_verdicts_are_those_of_the_local_model(local, behind, tmp_path):
    _, options = behind()
    project = lay_out(tmp_path)
    done = project.run(*options, *GREEDY, *CORRECTNESS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernelllm: endpoint," in done.stdout
    assert len(local.completions()) == 5
    assert project.completions() == local.completions()
    assert project.verdicts() == local.verdicts()
    assert {verdict for [(verdict, _)] in project.verdicts().values()} == {"accepted", "rejected"}


def test_faults_on_the_way_change_nothing_and_the_token_is_nowhere(local, behind, tmp_path):
    """Not ready yet, then a cut stream, then an error page that shows what it was sent."""
    proxy, options = behind([(503, {"error": "starting"}, {"Retry-After": "0"}), "cut", "html"])
    project = lay_out(tmp_path)
    done = project.run(*options, *GREEDY, *CORRECTNESS, "-rA", KERNELLLM_ENDPOINT_TOKEN=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.completions() == local.completions()
    assert project.verdicts() == local.verdicts()
    posts = proxy.posts()
    assert len(posts) == 5 + 3
    assert {seen.headers["authorization"] for seen in posts} == {f"Bearer {SECRET}"}
    assert SECRET not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "report.json" in files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_every_sample_arrives_though_the_server_ignores_n(taught, behind, tmp_path):
    proxy, options = behind(["pass", "cut"])
    project = lay_out(tmp_path)
    chosen = ("--kernelllm-samples=3", "-k", "AddReLU and correctness")
    done = project.run(*options, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [seen.body.get("n", 1) for seen in proxy.posts()] == [3, 1, 1, 1], (
        "one was cut off and asked for again"
    )
    [answer] = taught["AddReLU"]
    assert project.completions() == {"AddReLU": dict.fromkeys(range(3), answer)}
    assert "3/3" in done.stdout


def test_a_dead_endpoint_is_one_sentence_and_other_generators_go_on(tmp_path):
    dead = f"http://127.0.0.1:{free_port()}"
    project = lay_out(tmp_path)
    options = ("--kernelllm-generator=kernelllm,inductor", f"--kernelllm-endpoint={dead}")
    chosen = ("--kernelllm-samples=1", "-k", "(Gate or Softmax) and correctness")
    done = project.run(*options, *chosen, KERNELLLM_ENDPOINT_TOKEN=SECRET)
    assert done.returncode == 1, done.stdout + done.stderr
    sentences = re.findall(rf"^The endpoint {dead} .*$", done.stdout, re.MULTILINE)
    assert len(sentences) == 2, "one for each target"
    assert "cannot be reached" in sentences[0]
    assert "Traceback" not in done.stdout
    assert "pytest_kernelllm/" not in done.stdout
    assert "2 failed, 2 passed" in done.stdout
    assert project.verdicts() == {"Gate": [("accepted", "")], "Softmax": [("accepted", "")]}
    assert SECRET not in done.stdout + done.stderr
