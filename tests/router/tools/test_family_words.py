"""The words of families are written once."""

from __future__ import annotations

import ast
from pathlib import Path

from router import tools
from router.tools import family_words

ROUTER = Path(tools.__path__[0]).parent
WORDS = [
    word
    for name, word in vars(family_words).items()
    if name.isupper() and word.startswith(("<", "["))
]


def _texts(path: Path) -> set[str]:
    """All that a module says, but for its docstrings."""
    tree = ast.parse(path.read_text())
    said = {node for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    said -= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {node.value for node in said if isinstance(node.value, str)}


def test_no_other_module_spells_a_word_of_a_family() -> None:
    paths = [*(ROUTER / "tools").glob("*.py"), *(ROUTER / "grammar").glob("*.py")]
    others = [path for path in paths if path.stem not in ("family_words", "tools_in_text")]
    assert len(WORDS) > 15 and len(others) > 25
    found = {
        (path.name, word)
        for path in others
        for text in _texts(path)
        for word in WORDS
        if word in text
    }
    assert found == set()
