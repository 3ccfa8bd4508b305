"""The test model behind a real ``transformers serve``, through ``pytest --kernelllm``: equal to local, whatever breaks on the way."""

import re
import shutil

import pytest
from serving import SECRET, Proxy, free_port, transformers_serve
from tiny.lessons import HERE, MODEL, lessons, why_not_taught
from tiny.project import lay_out

from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.session import open_session

pytestmark = pytest.mark.slow

GREEDY = ("--kernelllm-set=temperature=0", "--kernelllm-samples=1")
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
    model = ("--kernelllm-generator=local", f"--kernelllm-set=model={MODEL}")
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


def test_answers_and_verdicts_are_the_local_models_whatever_fails_on_the_way(local, served, tmp_path):
    """Not ready yet, then a cut stream, then an error page that shows what it was sent; the token is nowhere."""
    url, folder = served
    proxy = Proxy(url, [(503, {"error": "starting"}, {"Retry-After": "0"}), "cut", "html"])
    options = (
        "--kernelllm-generator=kernelllm",
        f"--kernelllm-endpoint={proxy.url}",
        f"--kernelllm-set=model={folder}",
    )
    project = lay_out(tmp_path)
    done = project.run(*options, *GREEDY, *CORRECTNESS, "-rA", KERNELLLM_ENDPOINT_TOKEN=SECRET)
    proxy.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernelllm: endpoint," in done.stdout
    assert len(local.completions()) == 5
    assert project.completions() == local.completions()
    assert project.verdicts() == local.verdicts()
    assert {verdict for [(verdict, _)] in project.verdicts().values()} == {"accepted", "rejected"}
    posts = proxy.posts()
    assert len(posts) == 5 + 3
    assert {seen.headers["authorization"] for seen in posts} == {f"Bearer {SECRET}"}
    assert SECRET not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "report.json" in files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_every_sample_arrives_though_one_is_cut_off(taught, served, tmp_path):
    url, folder = served
    project = lay_out(tmp_path)
    [target] = [t for t in scan_file(tmp_path / "layers.py", tmp_path).targets if t.name == "AddReLU"]
    proxy = Proxy(url, ["pass", "cut"])
    model = {"generator": "kernelllm", "endpoint": proxy.url, "model": str(folder), "max_new_tokens": 640}
    try:
        with open_session(tmp_path, Settings(samples=3, device="cpu", **model)) as session:
            assert len(list(session.drafts(target))) == 3
    finally:
        proxy.close()
    assert len(proxy.posts()) == 4, "one was cut off and asked for again"
    [answer] = taught["AddReLU"]
    assert project.completions() == {"AddReLU": dict.fromkeys(range(3), answer)}


def test_a_dead_endpoint_is_one_sentence_and_other_generators_go_on(tmp_path):
    dead = f"http://127.0.0.1:{free_port()}"
    project = lay_out(tmp_path)
    shutil.copytree(HERE / "answers", tmp_path / "answers")
    options = ("--kernelllm-generator=kernelllm,files", "--kernelllm-set=candidates_dir=answers")
    options += (f"--kernelllm-endpoint={dead}",)
    chosen = ("--kernelllm-samples=1", "-k", "(Gate or AddReLU) and correctness")
    done = project.run(*options, *chosen, KERNELLLM_ENDPOINT_TOKEN=SECRET)
    assert done.returncode == 1, done.stdout + done.stderr
    sentences = re.findall(rf"^The endpoint {dead} .*$", done.stdout, re.MULTILINE)
    assert len(sentences) == 1, "once, whatever the number of targets"
    assert "cannot be reached" in sentences[0]
    assert "Traceback" not in done.stdout
    assert "pytest_kernelllm/" not in done.stdout
    assert "1 failed, 2 passed, 1 skipped" in done.stdout
    assert project.verdicts() == {"Gate": [("accepted", "")], "AddReLU": [("accepted", "")]}
    assert SECRET not in done.stdout + done.stderr
