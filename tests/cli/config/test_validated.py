"""`config validate`: all that is wrong in a file, with key, line and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app

WRONG = """# a fleet
port = 80000
max_num_seq = 4

zzz = \"\"\"
kv_memory_bytes = 1
\"\"\"
kv_memory_bytes = "512XB"
"grpc_port" = "1"
[engine]
port = 1
"""


def validate(*words: str) -> Result:
    return CliRunner().invoke(app, ["config", "validate", *words])


def written(folder: Path, text: str, name: str = "fleet.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_everything_that_is_wrong_is_told_with_its_line_and_what_helps(tmp_path: Path) -> None:
    file = written(tmp_path, WRONG)
    done = validate(file)
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f"error: {file}:2: port is 80000; allowed: 0 to 65535",
        f"error: {file}:3: max_num_seq is not an option; did you mean max_num_seqs?",
        f"error: {file}:5: zzz is not an option; docs/options.md has those that there are",
        f"error: {file}:8: kv_memory_bytes is '512XB'; allowed: bytes, or a size such as 512MiB",
        f"error: {file}:9: grpc_port is '1'; allowed: a whole number, without quotes",
        f"error: {file}:10: engine is not an option; docs/options.md has those that there are",
    ]


def test_a_good_file_is_exit_code_0_and_programs_get_each_file(tmp_path: Path) -> None:
    good = written(tmp_path, "port = 0\nmax_num_seqs = 3\n", "good.toml")
    assert validate(good).exit_code == 0
    bad = written(tmp_path, "port = -1\n", "bad.toml")
    done = validate(good, bad, "-o", "json")
    assert done.exit_code == 1
    first, second = json.loads(done.stdout)
    assert (first["valid"], second["valid"]) == (True, False)
    assert second["problems"][0]["key"] == "port"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 1\nport = 2\n", "line 2"),
        ("port", "is not TOML"),
        (f"port = {'1' * 5000}\n", "is not TOML"),
        ("max_num_seqs = 1e400\n", "max_num_seqs is inf"),
        ("tls_cert = 'a'\n", "--tls-cert and --tls-key come together"),
        ("port = 7\ngrpc_port = 7\n", "--port and --grpc-port are both 7"),
        ("api_keys = 'store'\n", "needs a --store"),
    ],
)
def test_what_a_process_would_not_start_with(tmp_path: Path, text: str, said: str) -> None:
    done = validate(written(tmp_path, text))
    assert done.exit_code == 1 and said in done.stderr and "fleet.toml" in done.stderr


def test_a_file_that_is_away_is_told_and_the_others_are_looked_at(tmp_path: Path) -> None:
    done = validate(str(tmp_path / "none.toml"), written(tmp_path, "port = 0\n"))
    assert done.exit_code == 1 and "none.toml cannot be read" in done.stderr
    assert "fleet.toml  good" in done.stdout


def test_what_belongs_to_one_worker_is_wrong_for_a_whole_fleet_alone(tmp_path: Path) -> None:
    file = written(tmp_path, "worker_id = 'a'\n")
    assert validate(file).exit_code == 0
    done = validate(file, "--process", "serve")
    assert done.exit_code == 1 and ":1: worker_id is an option of one worker" in done.stderr
    assert validate(file, "--process", "router").exit_code == 0
