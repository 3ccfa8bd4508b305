"""Writes the page: a template, a style and a script become one file that makes no request."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import math
from pathlib import Path
from typing import Any

from pytest_kernelllm.report.read import Report

_HERE = Path(__file__).parent
_NEEDED = ("jinja2", "pygments")


class HtmlError(Exception):
    """The page cannot be written; one sentence."""


def check_html() -> None:
    """Checks before a run that a page can be made.

    Raises:
        HtmlError: a package is missing.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise HtmlError(
            f"The HTML report needs {' and '.join(missing)}; run `pip install 'pytest-kernelllm[html]'`."
        )


def render_page(report: Report) -> str:
    """Returns the report as one HTML page."""
    from pytest_kernelllm.report.html.view import view

    return render(_HERE / "page.html.jinja", view(report))


def render(template: Path, page: Any) -> str:
    """Returns one HTML page that a template makes of ``page``, with the report's style and script.

    Every text is escaped, characters that nobody sees are named, and the page's content security policy allows no
    request and no script but the page's own.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    from pytest_kernelllm.report.html.code import visible

    def shown(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "times": _times}
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    return environment.get_template(template.name).render(
        page=page, style=Markup(style), script=Markup(script), script_digest=digest
    )


def write_page(path: Path, report: Report) -> None:
    """Writes the page to ``path``, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_page(report), encoding="utf-8")


def _times(value: float) -> str:
    """A speedup with three digits."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def _number(value: float | str | None, digits: int = 3) -> str:
    """A number for people, with so many significant digits."""
    if not isinstance(value, float | int):
        return value or "–"
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}"
