"""Renders a completion to the kernel module that would be judged, stored and adopted."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kernelllm_judge.core import kernel_module
from kernelllm_judge.core.domains import at_own_sizes, reached, shipped
from kernelllm_judge.core.records import Candidate, Case, Completion
from kernelllm_judge.core.syntax import parameters
from kernelllm_judge.launching import ServerFailed
from kernelllm_judge.render.errors import RenderError, unexpected
from kernelllm_judge.render.extract import ExtractError, extract
from kernelllm_judge.render.rendered import Rendered
from kernelllm_judge.render.undefined import require_defined
from kernelllm_judge.target.errors import TargetError

if TYPE_CHECKING:
    from kernelllm_judge.constructors import Constructors
    from kernelllm_judge.target.live import LiveTarget

__all__ = ["RenderError", "render"]


def render(
    completion: Completion,
    live: LiveTarget,
    constructors: Constructors | None = None,
    *,
    on_gpu: bool = False,
) -> Candidate:
    """Turns a completion into a candidate. Only the constructor of a ``ModelNew`` is executed, in a worker.

    A complete kernel module stays as it is, under this target's header; its ``SUPPORTS`` is cut down to what the
    target's cases cover, or added. TorchInductor's output code and hand-written ``ModelNew`` classes are translated.

    Args:
        completion: what a generator wrote.
        live: the target.
        constructors: run the constructor of a ``ModelNew``; those who render no such answers need none.
        on_gpu: whether a GPU will judge the candidate. Otherwise it is made for sizes that Triton's interpreter can be asked.

    Raises:
        launching.ServerFailed: no worker can start.
        RenderError: one sentence that names what is missing or cannot be carried, and where; or that the renderer
            itself failed. Nothing else comes of a completion, so that one completion never costs the others.
    """
    if not completion.text.strip():
        raise RenderError(completion.note or "The completion is empty.")
    try:
        return _rendered(completion, live, constructors, on_gpu)
    except (RenderError, ServerFailed):
        raise
    except (ExtractError, TargetError) as error:
        raise RenderError(str(error)) from None
    except (RecursionError, MemoryError):  # the parser raises either
        raise RenderError("The completion's code is nested too deeply to be read.") from None
    except UnicodeEncodeError:
        raise RenderError("The completion is not Unicode: it holds half of a surrogate pair.") from None
    except Exception as error:
        raise RenderError(unexpected("The renderer", "completion", error)) from error


def _rendered(
    completion: Completion, live: LiveTarget, constructors: Constructors | None, on_gpu: bool
) -> Candidate:
    from kernelllm_judge.render.inductor.translate import is_inductor_code, translate_inductor
    from kernelllm_judge.render.modelnew.translate import translate_modelnew

    composed = partial(_composed, completion, live, on_gpu)
    if completion.format == "inductor":
        return composed([translate_inductor(completion.text, live)], translated=True)
    code = extract(completion.text)
    if completion.format == "kernel_module":
        return _kernel_module(code, completion, live, on_gpu)
    if is_inductor_code(code):
        return composed([translate_inductor(code, live)], translated=True)
    if constructors is None:
        raise RenderError("A class `ModelNew` can only be rendered where its constructor can run.")
    return composed(translate_modelnew(code, live, constructors), translated=False)


def _composed(
    completion: Completion,
    live: LiveTarget,
    on_gpu: bool,
    renderings: Sequence[Rendered],
    *,
    translated: bool,
) -> Candidate:
    provenance = _provenance(completion, live)
    sources = []
    for scope in _scopes(live):
        for rendered in renderings:
            require_defined(rendered.body)
            cases = reached(scope, rendered.body)
            supports = shipped(rendered.supports, cases, on_gpu=on_gpu) or rendered.supports
            sources.append(kernel_module.compose(provenance, rendered.docstring, supports, rendered.body))
    return _candidate(sources, completion, live, translated=translated)


def _scopes(live: LiveTarget) -> list[Sequence[Case]]:
    """Returns for which cases a kernel is tried, one after the other.

    Where nobody named the sizes that vary, a kernel that is wrong at others than the given ones is for these.
    """
    return [live.cases] if live.sizes_are_named else [live.cases, [*map(at_own_sizes, live.cases)]]


def _provenance(completion: Completion, live: LiveTarget) -> kernel_module.Provenance:
    return kernel_module.Provenance(
        live.target.id,
        live.target.source_hash,
        completion.generator,
        completion.model,
        completion.revision,
        _licence_note(completion),
    )


def _licence_note(completion: Completion) -> str:
    if completion.model:
        return f"written by the model {completion.model}, whose licence may say what its output is for"
    if completion.format == "inductor":
        return "made from this module's own source by PyTorch's compiler"
    return ""


def _candidate(
    sources: Iterable[str], completion: Completion, live: LiveTarget, *, translated: bool
) -> Candidate:
    first, *others = dict.fromkeys(sources)
    return Candidate(
        live.target.id,
        first,
        completion.generator,
        note=completion.note,
        translated=translated,
        others=tuple(others),
    )


def _kernel_module(code: str, completion: Completion, live: LiveTarget, on_gpu: bool) -> Candidate:
    tree = ast.parse(code)
    forward = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if forward is None:
        raise RenderError("The kernel module has no top-level function `forward`.")
    given = [parameter.arg for parameter in parameters(forward.args, variadic=True)]
    expected = ["self", *live.signature.parameters]
    if sorted(given) != sorted(expected) or given[:1] != ["self"]:
        takes, needs = ", ".join(given), ", ".join(expected)
        raise RenderError(f"Line {forward.lineno}: forward takes ({takes}); the target needs ({needs}).")
    if not any(isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "SUPPORTS" for n in tree.body):
        return _composed(completion, live, on_gpu, [_without_head(code, tree, live)], translated=False)
    try:
        declared = kernel_module.read_supports(code)
    except kernel_module.KernelModuleError as error:
        raise RenderError(f"The kernel module cannot be read: {error}.") from None
    sources = []
    for scope in _scopes(live):
        # What is judged ships. Where nothing is left of SUPPORTS, it stays, and the judge says what is wrong with it.
        domains = shipped(declared, reached(scope, code), on_gpu=on_gpu) or declared
        text = code if domains == declared else kernel_module.with_supports(code, domains)
        sources.append(kernel_module.signed(text, _provenance(completion, live)))
    return _candidate(sources, completion, live, translated=False)


def _without_head(code: str, tree: ast.Module, live: LiveTarget) -> Rendered:
    """Removes the docstring from a kernel module without SUPPORTS, as ``compose`` writes it again."""
    docstring = ast.get_docstring(tree)
    lines = code.split("\n")
    if docstring is not None:
        del lines[tree.body[0].lineno - 1 : tree.body[0].end_lineno]
    return Rendered(
        "\n".join(lines).strip("\n"),
        docstring or f"{live.target.name}.",
        tuple(case.domain for case in live.cases),
    )
