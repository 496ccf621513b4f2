"""`models show`: the facts, and what fits into memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.models.cache.store import ModelStore
from cluster.models.footprint import footprint, parameters
from cluster.models.model_split import ModelSplit
from tests.cli.run_cli import cli
from tests.cluster.models.heads.test_eagle3 import AUTHORS


@pytest.fixture(scope="module", autouse=True)
def model() -> None:
    ModelStore().resolve("smollm2")


def shown(*flags: str) -> dict[str, object]:
    done = cli("models", "show", "smollm2", "-o", "json", *flags)
    assert done.returncode == 0, done.stderr
    facts: dict[str, object] = json.loads(done.stdout)
    return facts


def test_a_head_is_pulled_beside_its_model(tmp_path: Path) -> None:
    """One that is here is only read: it is no model, and no error."""
    (tmp_path / "config.json").write_text(json.dumps(AUTHORS))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    done = cli("models", "pull", "smollm2", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == str(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NothingKnown"]}))
    assert cli("models", "pull", str(tmp_path)).returncode != 0


def test_the_table_says_what_fits_into_the_memory_given() -> None:
    done = cli("models", "show", "smollm2", "--memory", "330MiB")
    assert done.returncode == 0, done.stderr
    assert "parameters             134515008" in done.stdout
    memory = done.stdout.partition("In 330 MiB of memory:\n")[2].splitlines()
    assert memory[0].split()[:2] == ["WEIGHTS", "KV"]
    assert memory[1].split()[:2] == ["stored", "bfloat16"]
    assert memory[2].split()[:2] == ["stored", "int8"]


def test_rows_follow_from_the_models_shape() -> None:
    rows = shown("--memory", "330MiB", "--weights", "full")["memory"]
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
    usable = 330 * 2**20 * 95 // 100  # the rest is headroom
    assert rows[3]["batches"]["2048"] == needs.largest_batch(usable, 2048) > 0


def test_kv_rows_of_one_byte_carry_a_scale() -> None:
    config = ModelStore().resolve("smollm2").config
    assert config.kv_shape.token_bytes(dtype="bfloat16", kv="int8") == 30 * 2 * 3 * (64 + 4)


def test_what_each_rank_would_hold_is_a_line_where_it_differs() -> None:
    done = cli("models", "show", "smollm2", "--memory", "1GiB", "--tensor-parallel-size", "3")
    assert done.returncode == 0, done.stderr
    ranks = done.stdout.partition("Each of 3 ranks holds:\n")[2].splitlines()
    assert ranks[1].split()[:3] == ["stored", "bfloat16", "0-2"]
    smallest = done.stdout.partition("fewest devices of 1.0 GiB that hold it:\n")[2].splitlines()
    assert smallest[1].split() == ["stored", "bfloat16", "1", "8192"]


def test_two_ranks_share_three_kv_heads_and_their_queries() -> None:
    facts = shown("--tensor-parallel-size", "2", "--device-memory", "200MiB")
    rows = facts["ranks"]
    assert isinstance(rows, list)
    first, second = [row for row in rows if (row["weights"], row["kv"]) == ("stored", "bfloat16")]
    assert (first["rank"], first["num_heads"], first["num_kv_heads"]) == (0, 3, 1)
    assert (second["rank"], second["num_heads"], second["num_kv_heads"]) == (1, 6, 2)
    assert second["kv_bytes_per_token"] == 2 * first["kv_bytes_per_token"] == 30 * 2 * 2 * 64 * 2
    assert facts["smallest_groups"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tensor-parallel-size", "10"), "9 heads cannot be shared by 10 ranks; use at most 9"),
        (("--expert-parallel-size", "2"), "say how many with --tensor-parallel-size"),
        (
            ("--tensor-parallel-size", "2", "--expert-parallel-size", "2"),
            "the model has no routed experts",
        ),
        (("--memory", "3x"), "--memory is '3x'; write a size such as 512MiB"),
        (("--weights", "int3"), "weights is 'int3'; choose auto"),
        (("--kv", "int3"), "kv is 'int3'; choose auto"),
    ],
)
def test_wrong_flags_are_named(flags: tuple[str, str], words: str) -> None:
    done = cli("models", "show", "smollm2", *flags)
    assert done.returncode != 0
    assert words in done.stderr
