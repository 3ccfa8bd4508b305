"""The directive ``generated``: a part of a page that is made from the code."""

from __future__ import annotations

import tables
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Generated(SphinxDirective):
    """``{generated} NAME [ARGUMENT…]``: what ``tables.PARTS[NAME]`` returns, read as Markdown."""

    required_arguments = 1
    optional_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Insert it; the page is read again by every build, because the code may have changed."""
        self.env.note_reread()
        name, *rest = self.arguments
        return self.parse_text_to_nodes(tables.PARTS[name](*rest), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
