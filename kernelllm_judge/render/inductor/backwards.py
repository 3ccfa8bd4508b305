"""Makes the last loop over a row's columns start at the row's end, what was read last by the loop before it.

As much of a row as the caches hold is still there then; from its start they would hold nothing that is needed next, once a row is
longer than they are.
"""

from __future__ import annotations

import ast
import copy

from kernelllm_judge.core.syntax import call_name, expression, read_names, stored_names


def with_last_loop_backwards(function: ast.FunctionDef) -> ast.FunctionDef:
    """Returns a copy of a kernel whose last loop runs backwards; the kernel itself where that would change a sum."""
    loops = [each for each in function.body if isinstance(each, ast.For)]
    if not goes_backwards(function):
        return function
    result = copy.deepcopy(function)
    place = function.body.index(loops[-1])
    loop = result.body[place]
    assert isinstance(loop, ast.For)
    loop = result.body[place] = with_passing_stores(loop)
    assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
    count, block = map(ast.unparse, loop.iter.args[1:])
    start, last = loop.target.id, "last_start"
    loop.target = ast.Name("back", ast.Store())
    loop.body.insert(0, ast.Assign([ast.Name(start, ast.Store())], expression(f"{last} - back")))
    begin = ast.Assign(
        [ast.Name(last, ast.Store())], expression(f"(tl.cdiv({count}, {block}) - 1) * {block}")
    )
    result.body.insert(place, begin)
    return ast.fix_missing_locations(result)


def with_passing_stores(loop: ast.For) -> ast.For:
    """Returns a copy of a loop whose stores leave the L2 cache first: what it reads is still there, and needed more."""
    result = copy.deepcopy(loop)
    for node in ast.walk(result):
        if isinstance(node, ast.Call) and call_name(node) == "tl.store" and not node.keywords:
            node.keywords = [ast.keyword("eviction_policy", ast.Constant("evict_first"))]
    return result


def goes_backwards(function: ast.FunctionDef) -> bool:
    """Whether a kernel reads rows again in its last loop, and sums nothing there: the order of a sum stays as it is."""
    loops = [each for each in function.body if isinstance(each, ast.For)]
    if len(loops) < 2:
        return False
    last = loops[-1]
    after = function.body[function.body.index(last) + 1 :]
    before = set[str]().union(
        *(stored_names(each) for each in function.body if not isinstance(each, ast.For))
    )
    whole = (
        isinstance(last.iter, ast.Call) and len(last.iter.args) == 3 and ast.unparse(last.iter.args[0]) == "0"
    )
    return (
        whole
        and not stored_names(last) & before.union(*map(read_names, after))
        and "tl.store" in ast.unparse(last)
    )
