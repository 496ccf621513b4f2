"""`quality`: wrong words are refused before anything is loaded."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.main import app
from cluster.models.cache.store import ModelStore


@pytest.fixture(scope="module", autouse=True)
def model() -> None:
    ModelStore().resolve("smollm2")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--kv", "int3"], "kv is 'int3'; choose auto, int8, fp8"),
        (["--weights", "int3"], "weights is 'int3'; choose auto, full, int8, int4 or fp8"),
        (["--lengths", "512,many"], "--lengths is '512,many'; write numbers"),
    ],
)
def test_a_wrong_word_is_refused_before_anything_is_measured(
    flags: list[str], problem: str
) -> None:
    done = CliRunner().invoke(app, ["quality", "smollm2", *flags])
    assert done.exit_code == 2
    assert problem in done.stderr
    assert "read the text" not in done.stderr
