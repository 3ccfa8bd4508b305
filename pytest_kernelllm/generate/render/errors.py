"""The error of rendering a completion."""


class RenderError(ValueError):
    """Raised if a completion cannot be rendered; one sentence names the attribute, the operation or the line."""
