"""Names of blocks: nobody else's prompt, model or tenant has the same."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from random import Random

from cluster.block_hash import NAME_BYTES, cache_root, chain_names, pack_tokens
from cluster.pairing import Pairing
from tests.router.planes import PAIRING

SIZE = 4
PROGRAM = """
from cluster.block_hash import cache_root, chain_names, pack_tokens
root = cache_root("pairing", "salt")
print(b"".join(chain_names(pack_tokens(range(12)), parent=root, block_size_tokens=4)).hex())
"""


def names_of(token_ids: list[int], root: bytes) -> list[bytes]:
    return chain_names(pack_tokens(token_ids), parent=root, block_size_tokens=SIZE)


def test_every_fact_that_bytes_depend_on_is_in_the_root() -> None:
    """Dimensions among them: of a cache keyed without them another shape was read as one's own."""
    changed = {
        item.name: replace(PAIRING, **{item.name: another(getattr(PAIRING, item.name))})
        for item in fields(Pairing)
    }
    keys = [PAIRING.key, *(pairing.key for pairing in changed.values())]
    assert len({cache_root(key, "salt") for key in keys}) == len(fields(Pairing)) + 1


def another(value: str | int) -> str | int:
    return value + "x" if isinstance(value, str) else value + 3


def test_where_one_text_ends_and_the_next_begins_is_in_the_root() -> None:
    assert len({cache_root("a", "b:c"), cache_root("a:b", "c"), cache_root("a:b:c", "")}) == 3


def test_a_name_stands_for_all_tokens_before_it() -> None:
    chance, root = Random(1), cache_root("pairing", "salt")
    prompt = [chance.randrange(2) for _ in range(32)]
    whole = names_of(prompt, root)
    for at in range(len(prompt)):
        other = [*prompt[:at], 1 - prompt[at], *prompt[at + 1 :]]
        same = [a == b for a, b in zip(whole, names_of(other, root), strict=True)]
        assert same == [number < at // SIZE for number in range(len(whole))]
    assert {len(name) for name in whole} == {NAME_BYTES}


def test_names_are_those_of_every_process_and_no_hash_of_python_s() -> None:
    said = set()
    for seed in ("0", "1"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM]
        said.add(subprocess.check_output(command, env=environment, text=True))
    root = cache_root("pairing", "salt")
    assert said == {b"".join(names_of(list(range(12)), root)).hex() + "\n"}
