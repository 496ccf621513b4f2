"""`models show`: the facts, and what fits into memory."""

from __future__ import annotations

import json

import pytest

from cluster.models.cache.store import ModelStore
from cluster.models.footprint import footprint, parameters
from cluster.models.model_split import ModelSplit
from tests.cli.run_cli import cli


@pytest.fixture(scope="module", autouse=True)
def model() -> None:
    ModelStore().resolve("smollm2")


def shown(*flags: str) -> dict[str, object]:
    done = cli("models", "show", "smollm2", "-o", "json", *flags)
    assert done.returncode == 0, done.stderr
    facts: dict[str, object] = json.loads(done.stdout)
    return facts


def test_the_table_says_what_fits_into_the_memory_given() -> None:
    done = cli("models", "show", "smollm2", "--memory", "300MiB")
    assert done.returncode == 0, done.stderr
    assert "parameters             134515008" in done.stdout
    memory = done.stdout.partition("In 300 MiB of memory:\n")[2].splitlines()
    assert memory[0].split()[:2] == ["WEIGHTS", "KV"]
    assert memory[1].split()[:2] == ["stored", "bfloat16"]
    assert memory[2].split()[:2] == ["stored", "int8"]


def test_rows_follow_from_the_models_shape() -> None:
    rows = shown("--memory", "300MiB", "--weights", "full")["memory"]
    assert isinstance(rows, list)
    card = ModelStore().resolve("smollm2")
    assert [(row["weights"], row["kv"]) for row in rows] == [
        ("bfloat16", "bfloat16"),
        ("bfloat16", "int8"),
        ("int8", "int8"),
        ("int4", "int8"),
    ]
    first = rows[0]
    assert first["kv_bytes_per_token"] == 30 * 2 * 3 * 64 * 2
    assert first["weight_bytes"] == pytest.approx(2 * parameters(card.config).total, rel=1e-3)
    assert 0 < first["max_context_tokens"] < 2048  # little is left beside 257 MiB of weights
    split = ModelSplit(config=card.config)
    needs = footprint(split, dtype="bfloat16", weights="int4", kv="int8", stored_bytes=None)
    assert rows[3]["batches"]["2048"] == needs.largest_batch(300 << 20, 2048) > 0


def test_kv_rows_of_one_byte_carry_a_scale() -> None:
    config = ModelStore().resolve("smollm2").config
    assert config.kv_shape.token_bytes(dtype="bfloat16", kv="int8") == 30 * 2 * 3 * (64 + 4)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--memory", "3x"), "--memory is '3x'; write a size such as 512MiB"),
        (("--weights", "int3"), "weights is 'int3'; choose auto"),
        (("--kv", "int3"), "kv is 'int3'; choose auto"),
    ],
)
def test_wrong_flags_are_named(flags: tuple[str, str], words: str) -> None:
    done = cli("models", "show", "smollm2", *flags)
    assert done.returncode != 0
    assert words in done.stderr
