"""The words around the code: ours, and those read from a model's own script."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pytest_kernelllm.models.prompt import PROMPT_VERSION, TEMPLATE, fill, template_of

PLAIN = "Write a kernel for:\n```python\n{}\n```\nGo."


@pytest.mark.parametrize(
    "script",
    [
        f"PROMPT_TEMPLATE = '''{PLAIN}'''\n",
        f"import torch\n\nPROMPT_TEMPLATE: str = '''{PLAIN}'''\nclass KernelLLM: ...\n",
        'PROMPT_TEMPLATE = ("Write a kernel for:\\n" "```python\\n{}\\n```\\nGo.")\n',
        f"PROMPT_TEMPLATE = 'an older {{}} one'\nPROMPT_TEMPLATE = '''{PLAIN}'''\n",
        f"raise SystemExit('never run')\nA = PROMPT_TEMPLATE = '''{PLAIN}'''\n",
    ],
    ids=["plain", "annotated", "in parts", "twice", "never run"],
)
def test_a_template_is_read_without_running_the_script(script: str) -> None:
    assert template_of(script) == PLAIN


@pytest.mark.parametrize(
    "script",
    [
        "",
        "TEMPLATE = '{}'",
        "PROMPT_TEMPLATE = 'no place'",
        "PROMPT_TEMPLATE = 'two {} places {}'",
        "PROMPT_TEMPLATE = open('prompt.txt').read()",
        "PROMPT_TEMPLATE = f'{len([])} {{}}'",
        "PROMPT_TEMPLATE = f'{3!r} {{}}'",
        "PROMPT_TEMPLATE = b'{}'",
        "PROMPT_TEMPLATE = UNKNOWN + '{}'",
        "PROMPT_TEMPLATE = '{}",
        "PROMPT_TEMPLATE = '\0{}'",
        "def f():\n    PROMPT_TEMPLATE = '{}'",
        "PROMPT_TEMPLATE = '{{}}'" + " + ''" * 5000,
    ],
    ids=range(13),
)
def test_scripts_without_a_usable_template(script: str) -> None:
    assert template_of(script) is None


def test_braces_doubled_for_format_are_made_single() -> None:
    script = "PROMPT_TEMPLATE = 'a dict {{\"a\": {{1: 2}} }} and {} there'"
    assert template_of(script) == 'a dict {"a": {1: 2} } and {} there'


def test_single_braces_beside_the_place_stay() -> None:
    script = "PROMPT_TEMPLATE = 'grid = lambda meta: {x} and {} there, {{kept}}'"
    assert template_of(script) == "grid = lambda meta: {x} and {} there, {{kept}}"


def test_filling_leaves_all_other_braces_alone() -> None:
    code = "x = {}\ny = {'a': {1}}\nz = f'{x} {{}}'\n"
    assert fill("{a} {} {{b}}", code) == "{a} " + code + " {{b}}"


@pytest.mark.parametrize("template", ["none", "{} {}"])
def test_filling_needs_one_place(template: str) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        fill(template, "code")


def test_our_own_template_has_its_parts_in_order() -> None:
    assert isinstance(PROMPT_VERSION, int)
    parts = [
        "ModelNew",
        "You decide",
        "class Model(",
        "class ModelNew(",
        "given the following architecture",
        "{}",
        "one fenced",
    ]
    places = [TEMPLATE.index(part) for part in parts]
    assert places == sorted(places)
    assert "HERE" in fill(TEMPLATE, "HERE")


def test_the_worked_example_of_our_template_works() -> None:
    asked, answered = re.findall(r"```python\n(import.*?)```", TEMPLATE, re.DOTALL)
    check = (
        "x, y = (t.flatten()[:1500] for t in get_inputs())\n"
        "assert get_init_inputs() == []\n"
        "assert torch.equal(ModelNew()(x, y), Model()(x, y))\n"
        "assert not torch.equal(ModelNew()(x, y), x)\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    source = "\n".join([asked, answered, check])
    # From a file: Triton reads the source of its kernels.
    code = "import sys, runpy, tempfile\nf = tempfile.NamedTemporaryFile('w', suffix='.py')\nf.write(sys.stdin.read()); f.flush()\nrunpy.run_path(f.name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def test_the_package_is_cheap_to_import() -> None:
    code = "import sys, pytest_kernelllm.models.prompt\nassert 'torch' not in sys.modules\nassert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
