"""How the site is built: ``make docs``."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent), str(DOCS.parent / "hooks")]

import pytest_kernelllm  # noqa: E402  # from this tree

project = "pytest-kernelllm"
author = "The pytest-kernelllm maintainers"
copyright = author
version = release = pytest_kernelllm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_argparse_cli",
    "sphinx_copybutton",
    "generated",
]
exclude_patterns = ["_generated"]
html_theme = "furo"
html_title = project
html_static_path = ["_static"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

# Every reference to our own names must lead somewhere. Other projects' inventories would need the network.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!pytest_kernelllm\.|kernelllm_runtime\.).*")]
nitpick_ignore = [
    ("py:class", "kernelllm_runtime.marker.MODULE"),  # type variables
    ("py:class", "kernelllm_runtime.regions.backend.MODEL"),
    ("py:class", "kernelllm_runtime.marker._Given"),  # the marker's own parameters, which its docstring lists
    ("py:class", "kernelllm_runtime.instance.Swap"),  # in a private field
    ("py:class", "pytest_kernelllm.beside.ranking.markers.Marker"),  # in a private field
]
# What a command prints may look like a command (a comment's `#`). Tests parse all other blocks.
suppress_warnings = ["misc.highlighting_failure"]
linkcheck_ignore = [r"http://localhost.*"]
