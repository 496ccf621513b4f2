"""What failed in `make test` has one more try, alone, where it was one of a few."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import once_more


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What pytest is asked to run; it says that all passed."""
    asked: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytest, "main", lambda names: asked.append(names) or 0)
    return asked


def failed(*names: str) -> None:
    kept = Path(".pytest_cache/v/cache/lastfailed")
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(dict.fromkeys(names, True)))


def test_a_few_that_pass_alone_are_told_by_name(
    asked: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    failed("tests/a.py::test_b", "tests/c.py::test_d")
    assert once_more.main() == 0
    assert [names[-2:] for names in asked] == [["tests/a.py::test_b", "tests/c.py::test_d"]]
    assert capsys.readouterr().out.endswith(
        "FAILED ONCE, PASSED ALONE:\n  tests/a.py::test_b\n  tests/c.py::test_d\n"
    )


def test_what_fails_again_is_a_fault(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest, "main", lambda names: pytest.ExitCode.TESTS_FAILED)
    failed("tests/a.py::test_b")
    assert once_more.main() == 1


@pytest.mark.parametrize("number", [0, 7, 400])
def test_many_or_none_are_not_asked_again(asked: list[list[str]], number: int) -> None:
    failed(*map(str, range(number)))
    assert once_more.main() == 1 and asked == []


def test_without_a_record_nothing_is_asked_again(asked: list[list[str]]) -> None:
    assert once_more.main() == 1 and asked == []
