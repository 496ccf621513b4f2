"""One thing, one name: a name that stands for a type stands for one type in all of our packages."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.packaging.test_import_cycles import FILES

TYPE_PARAMETERS = ("TypeVar", "ParamSpec", "TypeVarTuple")
"""Their names are good in the signatures that they stand in, and are imported by nobody."""


def types_in(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Public classes of a module, also those within classes, and aliases of types."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement.name
            yield from types_in(each for each in statement.body if isinstance(each, ast.ClassDef))
        elif isinstance(statement, ast.Assign) and not makes_a_parameter(statement.value):
            yield from (to.id for to in statement.targets if isinstance(to, ast.Name))


def makes_a_parameter(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith(TYPE_PARAMETERS)


def is_public_type(name: str) -> bool:
    """Spelled as types are: not `_Private`, not a CONSTANT, not a variable."""
    return name[0].isupper() and not name.isupper()


def modules_by_type() -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, path in FILES.items():
        for name in filter(is_public_type, types_in(ast.parse(path.read_text()).body)):
            found[name].append(module)
    return dict(found)


def test_no_two_public_types_of_our_packages_share_a_name() -> None:
    found = modules_by_type()
    assert len(found) > 500 and "ModelCard" in found and "Clock" in found
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}
