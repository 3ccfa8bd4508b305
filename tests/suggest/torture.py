"""Source files that are hard to edit: one small text each, its marker before and after a kernel is adopted."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

KERNEL = "KERNEL"
"""Stands for the adopted kernel's dotted path."""

IMPORT = "from pytest_kernelllm import triton_candidate\n"
BODY = "class Norm:\n    def forward(self, x):\n        return x\n"
INNER = "    class Norm:\n        def forward(self, x):\n            return x\n"
BARE, ADOPTED = "@triton_candidate", f'@triton_candidate(kernel="{KERNEL}")'
OWN_KERNEL = '"""Written by hand."""\n\nSUPPORTS = ()\n\n\ndef forward(self, x):\n    return x\n'


@dataclass(frozen=True)
class Nasty:
    """A file whose ``@@`` is the marker: ``before``, and once a kernel is adopted, ``after``."""

    source: str
    before: str = BARE
    after: str = ADOPTED
    path: str = "m.py"
    target: str = "Norm"
    kernel: str = "_triton.norm"
    reach: str = ""
    """How the class is reached in the imported file; as the target is called, if that is empty."""
    encoding: str = "utf-8"
    mode: int = 0o644
    others: Mapping[str, str] = field(default_factory=dict)
    """Further files, by path."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic links, by path."""
    config: tuple[str, ...] = ()
    """git's configuration of the repository: ``name=value``."""
    reverted: str | None = None
    """The marker after ``kernelllm revert``, where that is not what it was before."""
    reformatted: bool = False
    """Whether the project's formatter changes the shortest edit."""
    refused: str = ""
    """Part of the reason why there is no patch."""

    def content(self, marker: str) -> bytes:
        """The file's bytes with this marker."""
        return self.source.replace("@@", marker.replace(KERNEL, self.kernel)).encode(self.encoding)


def decorated(before: str, after: str = "", **others) -> Nasty:
    """The plain class under another marker."""
    return Nasty(f"{IMPORT}\n\n@@\n{BODY}", before, after, **others)


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


PLAIN = f"{IMPORT}\n\n@@\n{BODY}"
PACKAGE = {"pkg/__init__.py": "", "pkg/sub/__init__.py": ""}
GENERIC = PLAIN.replace("class Norm:", "class Norm[T: (int, float)]:")

NASTY: dict[str, Nasty] = {
    # ---------------------------------------------------------------- bytes
    "plain": Nasty(PLAIN),
    "CRLF": Nasty(crlf(PLAIN)),
    "CR alone": Nasty(PLAIN.replace("\n", "\r")),
    "mixed line ends": Nasty(f"{IMPORT}x = 1\r\ny = 2\r\n\n@@\r\n{BODY}z = 3\r\nlast = 4\n"),
    "CRLF around, LF in the marker": Nasty(
        crlf(IMPORT) + "@@\n" + crlf(BODY),
        "@triton_candidate(\n    init=(),\n)",
        f'@triton_candidate(\n    init=(),\n    kernel="{KERNEL}",\n)',
    ),
    "CRLF in work trees, LF in git": Nasty(crlf(PLAIN), config=("core.autocrlf=true",)),
    "tabs": Nasty(
        f"{IMPORT}class Outer:\n\t@@\n\tclass Norm:\n\t\tdef forward(self, x):\n\t\t\treturn x\n",
        "@triton_candidate(\n\t\tinit=(),\n\t)",
        f'@triton_candidate(\n\t\tinit=(),\n\t\tkernel="{KERNEL}",\n\t)',
        target="Outer.Norm",
        kernel="_triton.outer_norm",
    ),
    "no final newline": Nasty(
        f"{IMPORT}{BODY}\n@@", "triton_candidate(Norm)", f'triton_candidate(Norm, kernel="{KERNEL}")'
    ),
    "byte order mark": Nasty(PLAIN, encoding="utf-8-sig"),
    "byte order mark, CRLF, no final newline": Nasty(
        crlf(f"{IMPORT}{BODY}\n@@"),
        "triton_candidate(Norm)",
        f'triton_candidate(Norm, kernel="{KERNEL}")',
        encoding="utf-8-sig",
    ),
    "form feeds": Nasty(f"{IMPORT}\x0c\nx = '\x0b\x1c\u2028\x85'\n\x0c@@\n{BODY}\x0c\n"),
    "latin-1 cookie": Nasty(f"# -*- coding: latin-1 -*-\n{PLAIN}caf\xe9 = '\xff'\n", encoding="latin-1"),
    "cp1252 cookie below a shebang": Nasty(
        f"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nprice = '€'\n{PLAIN}", encoding="cp1252"
    ),
    "emoji and other alphabets": Nasty(
        f"# 🔥🧪\n{IMPORT}名前 = '🔥'\n\n\n@@\nclass Größe:\n    def forward(self, x):\n        return '𝄞'\n",
        "@triton_candidate(inputs=lambda: '𝄞é🔥')",
        f"@triton_candidate(inputs=lambda: '𝄞é🔥', kernel=\"{KERNEL}\")",
        target="Größe",
        kernel="_triton.größe",
    ),
    "an identifier that Python spells differently": Nasty(
        f"{IMPORT}@@\nclass \ufb01lter:\n    def forward(self, x):\n        return x\n",
        target="filter",
        kernel="_triton.filter",
    ),
    "very long lines": Nasty(
        f"{IMPORT}{BODY}text = '{'x' * 100_000}'; @@; more = '{'y' * 100_000}'\n",
        "triton_candidate(Norm)",
        f'triton_candidate(Norm, kernel="{KERNEL}")',
    ),
    "many equal lines": Nasty("x = 1\n" * 600 + PLAIN + "x = 1\n" * 600),
    # ---------------------------------------------------------------- layout
    "one line": Nasty(
        "import pytest_kernelllm as pk, shapes; @@",
        "pk.triton_candidate(shapes.Norm)",
        f'pk.triton_candidate(shapes.Norm, kernel="{KERNEL}")',
        others={"shapes.py": BODY},
        reach="shapes.Norm",
    ),
    "one line with semicolons": Nasty(
        f"{IMPORT}{BODY}x = 1; @@; y = 2\n",
        "triton_candidate(Norm, init=(8,))",
        f'triton_candidate(Norm, init=(8,), kernel="{KERNEL}")',
    ),
    "docstring, __future__, then the class": Nasty(
        f'"""One @triton_candidate marker.\n"""\n\nfrom __future__ import annotations\n\n{PLAIN}'
    ),
    "shebang of a program": Nasty(f"#!/usr/bin/env python\n{PLAIN}", mode=0o755),
    "the marker's text in strings and comments": Nasty(
        f'{IMPORT}# @triton_candidate\ns = """\n@triton_candidate\nclass Norm: pass\n"""\n\n@@\n{BODY}'
        f"t = '@triton_candidate(kernel=\"_triton.norm\")'\n"
    ),
    "formatter off": Nasty(
        f"{IMPORT}# fmt: off\n@@\n{BODY}# fmt: on\n",
        "@triton_candidate( init = ( 8 , ) ,\n                   dims = { } )",
        '@triton_candidate( init = ( 8 , ) ,\n                   dims = { },\n                   kernel="KERNEL" )',
    ),
    "match statements": Nasty(
        f"match 1:\n    case int(x) if x > 0:\n        pass\n    case _:\n        pass\n{PLAIN}"
    ),
    "a class behind a condition": Nasty(
        f"{IMPORT}import sys\nif sys.platform:\n    @@\n{INNER}else:\n    Norm = None\n"
    ),
    "type parameters": Nasty(
        GENERIC, refused="" if sys.version_info >= (3, 12) else "cannot be read as Python"
    ),
    # ---------------------------------------------------------------- which class
    "nested class": Nasty(
        f"{IMPORT}class Outer:\n    @@\n{INNER}", target="Outer.Norm", kernel="_triton.outer_norm"
    ),
    "the same name twice, the last counts": Nasty(f"{IMPORT}{BARE}\n{BODY}\n\n@@\n{BODY}"),
    "the same name inside and outside": Nasty(f"{IMPORT}class Outer:\n    {BARE}\n{INNER}\n\n@@\n{BODY}"),
    "a keyword's name": Nasty(
        f"{IMPORT}@@\nclass Lambda:\n    def forward(self, x):\n        return x\n",
        target="Lambda",
        kernel="_triton.kernel_lambda_kernel",
    ),
    # ---------------------------------------------------------------- decorators
    "stacked": Nasty(f"{IMPORT}keep = lambda cls: cls\n\n\n@keep\n@@\n@keep\n{BODY}"),
    "in parentheses": decorated(
        "@(triton_candidate)  # fast", f'@(triton_candidate(kernel="{KERNEL}"))  # fast'
    ),
    "with comments between": Nasty(
        f"{IMPORT}keep = lambda cls: cls\n\n\n@keep\n# one )\n\n# two (\n@@\n# three ,\n{BODY}"
    ),
    "empty parentheses": decorated(
        "@triton_candidate()", f'@triton_candidate(\n    kernel="{KERNEL}",\n)', reformatted=True
    ),
    "blanks in parentheses": decorated("@triton_candidate( )", f'@triton_candidate(kernel="{KERNEL}" )'),
    "only a comment in parentheses": decorated(
        "@triton_candidate(  # todo ) ,\n)",
        f'@triton_candidate(\n    kernel="{KERNEL}"  # todo ) ,\n)',
        reformatted=True,
    ),
    "arguments over lines, comments, trailing comma": decorated(
        "@triton_candidate(\n    inputs=lambda: 1,  # (a,\n    init=(8,),  # b)\n    # c\n)",
        '@triton_candidate(\n    inputs=lambda: 1,  # (a,\n    init=(8,),  # b)\n    kernel="KERNEL",\n    # c\n)',
    ),
    "arguments over lines, no trailing comma": decorated(
        "@triton_candidate(\n    inputs=lambda: 1,\n    init=(8,)  # b\n)",
        '@triton_candidate(\n    inputs=lambda: 1,\n    init=(8,),  # b\n    kernel="KERNEL"\n)',
    ),
    "arguments aligned with the parenthesis": decorated(
        "@triton_candidate(init=(8,),\n                  dims={})",
        '@triton_candidate(init=(8,),\n                  dims={},\n                  kernel="KERNEL")',
    ),
    "trailing comma on one line": decorated(
        "@triton_candidate(init=(8,),)", f'@triton_candidate(init=(8,), kernel="{KERNEL}",)'
    ),
    "line continuations": decorated(
        "@triton_candidate(init=(8,), \\\n    dims={})",
        '@triton_candidate(init=(8,), \\\n    dims={},\n    kernel="KERNEL")',
    ),
    "all arguments on one inner line": decorated(
        "@triton_candidate(\n    inputs=None, init=(8,)  # b\n)",
        f'@triton_candidate(\n    inputs=None, init=(8,), kernel="{KERNEL}"  # b\n)',
    ),
    "a value in parentheses over lines": decorated(
        "@triton_candidate(init=(\n    8\n))", f'@triton_candidate(init=(\n    8\n), kernel="{KERNEL}")'
    ),
    "strings that look like code": decorated(
        '@triton_candidate(inputs=lambda: f("),#", """\n)"""))',
        f'@triton_candidate(inputs=lambda: f("),#", """\n)"""), kernel="{KERNEL}")',
    ),
    "a string continued with a backslash": decorated(
        "@triton_candidate(inputs=lambda: ('a\\\n)'))",
        f"@triton_candidate(inputs=lambda: ('a\\\n)'), kernel=\"{KERNEL}\")",
    ),
    "walrus in an argument": decorated(
        "@triton_candidate(init=((n := 3), n))", f'@triton_candidate(init=((n := 3), n), kernel="{KERNEL}")'
    ),
    "lambda with defaults": decorated(
        "@triton_candidate(inputs=lambda n=(1, 2)[0], *, m={')': ','}: (n, m))",
        "@triton_candidate(inputs=lambda n=(1, 2)[0], *, m={')': ','}: (n, m), kernel=\"KERNEL\")",
    ),
    "Windows paths in strings": decorated(
        r"@triton_candidate(inputs=lambda: (r'C:\new\table', 'C:\\x'))",
        r"""@triton_candidate(inputs=lambda: (r'C:\new\table', 'C:\\x'), kernel="KERNEL")""",
    ),
    "called in two steps": Nasty(
        f"{IMPORT}{BODY}@@(Norm)\n",
        "triton_candidate()",
        f'triton_candidate(kernel="{KERNEL}",)',
    ),
    # ---------------------------------------------------------------- imports
    "imported under another name": Nasty(
        f"from pytest_kernelllm import triton_candidate as tc\n@@\n{BODY}", "@tc", f'@tc(kernel="{KERNEL}")'
    ),
    "package under another name": Nasty(
        f"import pytest_kernelllm as pk\n@@\n{BODY}",
        "@pk . triton_candidate",
        f'@pk . triton_candidate(kernel="{KERNEL}")',
    ),
    "a chain of attributes": Nasty(
        f"import pytest_kernelllm.marker\n@@\n{BODY}",
        "@pytest_kernelllm.marker.triton_candidate(init=())",
        f'@pytest_kernelllm.marker.triton_candidate(init=(), kernel="{KERNEL}")',
    ),
    "imported if it is there": Nasty(
        f"try:\n    {IMPORT}except ImportError:\n    def triton_candidate(cls=None, **_):\n        return cls\n\n\n@@\n{BODY}"
    ),
    "imported for type checkers and otherwise": Nasty(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pytest_kernelllm import triton_candidate\n"
        f"else:\n    from pytest_kernelllm.marker import triton_candidate\n@@\n{BODY}"
    ),
    "from the runtime": Nasty(f"from kernelllm_runtime import triton_candidate\n@@\n{BODY}"),
    "from the runtime, under another name": Nasty(
        f"import kernelllm_runtime.marker as kr\n@@\n{BODY}",
        "@kr.triton_candidate",
        f'@kr.triton_candidate(kernel="{KERNEL}")',
    ),
    "star import": Nasty(f"from pytest_kernelllm import *\n@@\n{BODY}"),
    "re-exported by the project": Nasty(f"from compat import *\n@@\n{BODY}", others={"compat.py": IMPORT}),
    # ---------------------------------------------------------------- places
    "in a package": Nasty(PLAIN, path="pkg/sub/m.py", kernel="pkg.sub._triton.norm", others=PACKAGE),
    "in a package's __init__.py": Nasty(PLAIN, path="pkg/__init__.py", kernel="pkg._triton.norm"),
    "src layout": Nasty(
        PLAIN, path="src/pkg/m.py", kernel="pkg._triton.norm", others={"src/pkg/__init__.py": ""}
    ),
    "below a namespace package": Nasty(
        PLAIN, path="space/pkg/m.py", kernel="pkg._triton.norm", others={"space/pkg/__init__.py": ""}
    ),
    "outside of any package": Nasty(PLAIN, path="tools/scripts/m.py"),
    "blanks and other alphabets in the path": Nasty(PLAIN, path="mödels und mehr/größe 2.py"),
    "a package with blanks in its name": Nasty(
        PLAIN, path="my pkg/m.py", kernel="my pkg._triton.norm", others={"my pkg/__init__.py": ""}
    ),
    "quotes, tabs and backslashes in the path": Nasty(PLAIN, path='we"ird\\dir\there/m.py'),
    "a read-only file": Nasty(PLAIN, mode=0o444),
    "two targets want one name": Nasty(
        PLAIN,
        path="pkg/m.py",
        kernel="pkg._triton.m_norm",
        others={"pkg/__init__.py": "", "pkg/other.py": PLAIN.replace("@@", BARE)},
    ),
    "a file of one's own where the kernel would go": Nasty(
        PLAIN, kernel="_triton.m_norm", others={"_triton/norm.py": OWN_KERNEL}
    ),
    # ---------------------------------------------------------------- kernels that are named already
    "a stale kernel": decorated(
        "@triton_candidate(kernel = '_triton.norm' , init=())",
        "@triton_candidate(kernel = '_triton.norm' , init=())",
        others={"_triton/norm.py": "# Triton kernel for m.py::Norm\n# source hash: 0\n\nold = True\n"},
        reverted="@triton_candidate(init=())",
    ),
    "a kernel that is not there, elsewhere": decorated(
        "@triton_candidate(kernel='gone.kernels.norm')",
        "@triton_candidate(kernel='_triton.norm')",
        reverted="@triton_candidate",
    ),
    "a kernel of one's own": decorated(
        "@triton_candidate(init=(), kernel='_triton.norm')",
        "@triton_candidate(init=(), kernel='_triton.m_norm')",
        kernel="_triton.m_norm",
        others={"_triton/norm.py": OWN_KERNEL},
        reverted="@triton_candidate(init=())",
    ),
    "kernel=None": decorated("@triton_candidate(kernel=None)", ADOPTED, reverted="@triton_candidate"),
    # ---------------------------------------------------------------- refused
    "a class in a function": Nasty(
        f"{IMPORT}def make():\n    @@\n{INNER}    return Norm\n",
        refused="m.py:4: class Norm is defined in a function and cannot be a target; move it to module level.",
    ),
    "a class in a loop": Nasty(
        f"{IMPORT}for _ in range(2):\n    @@\n{INNER}",
        refused="m.py:4: class Norm is defined in a loop and cannot be a target; move it to module level.",
    ),
    "a class without a name": Nasty(
        f"{IMPORT}@@\n",
        "triton_candidate(type('Norm', (), {}))",
        refused="`type('Norm', (), {})` does not name a class; pass the class by its name.",
    ),
    "options in a dict": decorated(
        "@triton_candidate(**{'init': ()})", refused="`**{'init': ()}` may hold a kernel already"
    ),
    "a kernel that is computed": decorated(
        "@triton_candidate(kernel='a' + 'b')", refused="its kernel is the expression `'a' + 'b'`"
    ),
    "a linked file": Nasty(
        PLAIN,
        path="real/m.py",
        links={"m.py": "real/m.py"},
        kernel="_triton.norm",
        refused="m.py is a link to real/m.py, which git does not patch; run `pytest --kernelllm real/m.py`.",
    ),
    "a file below a linked folder": Nasty(
        PLAIN,
        path="real/m.py",
        links={"linked": "real"},
        refused="linked/m.py is a link to real/m.py, which git does not patch; run `pytest --kernelllm real/m.py`.",
    ),
    "not Python": Nasty(
        f"{IMPORT}@@(\n{BODY}", refused="m.py:2: cannot be read as Python ('(' was never closed)."
    ),
}
