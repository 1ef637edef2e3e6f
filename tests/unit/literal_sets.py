"""Finds collections that a module keeps of its own, where a table should be asked."""

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import stoker

HOUSE = Path(stoker.__file__).parent

IsMember = Callable[[ast.expr | None], bool]


def modules(*left_out: str) -> list[Path]:
    """All modules but these files and folders, and what is generated."""
    unasked = frozenset((*left_out, "proto"))
    found = sorted(path for path in HOUSE.rglob("*.py") if unasked.isdisjoint(path.relative_to(HOUSE).parts))
    assert len(found) > 100, "the house is larger than that"
    return found


def literal_sets(path: Path, is_member: IsMember) -> Iterator[ast.expr]:
    """Collections of members, and tables of facts about them; tables of functions that carry them out are none."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Set | ast.Tuple | ast.List) and are_members(node.elts, is_member):
            yield node
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            asked = node.args[1]
            if isinstance(asked, ast.BinOp) and are_members([asked.left, asked.right], is_member):
                yield node
        if isinstance(node, ast.Dict) and all(map(is_constant, node.values)) and are_members(node.keys, is_member):
            yield node


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def are_members(nodes: Sequence[ast.expr | None], is_member: IsMember) -> bool:
    return len(nodes) > 1 and all(is_member(node) for node in nodes)


def is_attribute_of(modules: Sequence[str], names: frozenset[str]) -> IsMember:
    """Whether a node is one of these names of one of these modules or classes."""

    def asks(node: ast.expr | None) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
            and node.attr in names
        )

    return asks
