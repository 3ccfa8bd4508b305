"""Why a completion could not become a kernel module."""


class RenderError(ValueError):
    """A completion cannot be rendered; one sentence names the attribute, the op or the line."""
