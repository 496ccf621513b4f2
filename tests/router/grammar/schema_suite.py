"""The JSON-Schema test suite: its object schemas, with instances that are valid and others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

_SUITE = "SPLITSERVE_JSON_SCHEMA_SUITE"
"""Where `make test` has put it."""
DRAFTS = ("draft7", "draft2020-12")
_VALIDATORS = {
    "draft7": jsonschema.Draft7Validator,
    "draft2020-12": jsonschema.Draft202012Validator,
}
_SCHEMA_OF = {"draft7": "http://json-schema.org/draft-07/schema#"}
"""Drafts whose schemas do not name it themselves."""


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """One schema. `instances`: each with whether it is valid."""

    name: str
    draft: str
    schema: dict[str, Any]
    instances: tuple[tuple[Any, bool], ...] = ()

    def validate(self, instance: Any) -> None:
        """Raises jsonschema's ValidationError."""
        _VALIDATORS[self.draft](self.schema).validate(instance)


def suite_cases(draft: str) -> list[SuiteCase]:
    """Skips the test where nobody has fetched the suite."""
    folder = os.environ.get(_SUITE)
    if folder is None or not (files := sorted((Path(folder) / draft).glob("*.json"))):
        pytest.skip("the JSON-Schema suite is not here; `make test` fetches it")
    return [case for file in files for case in _cases(file, draft)]


def _cases(file: Path, draft: str) -> Iterator[SuiteCase]:
    for group in json.loads(file.read_text()):
        schema = group["schema"]
        if not isinstance(schema, dict):
            continue
        if draft in _SCHEMA_OF:
            schema = {"$schema": _SCHEMA_OF[draft], **schema}
        told = tuple((test["data"], test["valid"]) for test in group["tests"])
        yield SuiteCase(f"{file.stem}: {group['description']}", draft, schema, told)


def spellings(instance: Any) -> list[str]:
    """Of JSON, as different writers have it."""
    return [
        json.dumps(instance, ensure_ascii=False, separators=(",", ":")),
        json.dumps(instance, ensure_ascii=False),
        json.dumps(instance, indent=2),
    ]
