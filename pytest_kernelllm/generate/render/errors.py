"""Why a completion could not become a kernel module."""


class RenderError(ValueError):
    """A completion cannot be rendered; the text is one sentence that names the attribute, the op or the line."""
