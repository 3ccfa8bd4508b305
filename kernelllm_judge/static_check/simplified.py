"""Rewrites what is harmless as a whole and refused in parts, before a kernel module is read."""

from __future__ import annotations

import ast


class Simplified(ast.NodeTransformer):
    """Rewrites what is harmless as a whole and refused in parts, for the check only.

    ``getattr(torch.cuda.get_device_properties(…), "name", default)`` becomes an attribute: kernels ask so for what an older
    torch does not know. Of other objects, attributes are not got by name. ``config.kwargs["BLOCK"]`` becomes
    ``config["BLOCK"]``, and ``config.kwargs.get(…)`` likewise: the numbers of a configuration of Triton's may be read.
    ``x.storage_offset()`` becomes ``x.numel()`` among the arguments of ``as_strided``, where it belongs.
    """

    def __init__(self, tree: ast.Module) -> None:
        """Finds out whether ``getattr`` is the builtin in ``tree``."""
        names = {getattr(node, field, None) for node in ast.walk(tree) for field in ("name", "arg", "asname")}
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self._builtin = "getattr" not in names | stored

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replaces the call by a choice between the attribute and the default."""
        self.generic_visit(node)
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[
                    ast.Call(func=ast.Attribute(attr="get_device_properties")) as value,
                    ast.Constant(value=str(name)),
                    default,
                ],
                keywords=[],
            ) if self._builtin and name.isidentifier():
                attribute = ast.copy_location(ast.Attribute(value, name, ast.Load()), node)
                test = ast.copy_location(ast.Constant(True), node)
                return ast.copy_location(ast.IfExp(test, attribute, default), node)
            case ast.Call(func=ast.Attribute(attr="as_strided"), args=args):
                for each in (inner for given in args for inner in ast.walk(given)):
                    if isinstance(each, ast.Attribute) and each.attr == "storage_offset":
                        each.attr = "numel"
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=config, attr="kwargs"), attr="get") as read
            ):
                read.value = config
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Leaves ``kwargs`` out where it is read."""
        self.generic_visit(node)
        match node:
            case ast.Subscript(value=ast.Attribute(value=config, attr="kwargs"), ctx=ast.Load()):
                node.value = config
        return node
