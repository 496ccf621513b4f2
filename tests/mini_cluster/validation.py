"""Whether an object is one of its kind: the schema's types, and not one field beside."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]
from referencing import Registry
from referencing import Resource as Document

from tests.mini_cluster.history import Object
from tests.mini_cluster.refusals import Refusal, bad_request
from tests.mini_cluster.resources import Resource
from tests.mini_cluster.schemas import definitions, schema_of


def validate(resource: Resource, made: Object) -> None:
    """Refusal 400 that names every unknown field, else 422 that names every other fault."""
    errors = list(_validator(json.dumps(schema_of(resource))).iter_errors(made))
    if unknown := [field for error in errors for field in _unknown_fields(error)]:
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        about = f'{resource.kind} in version "{resource.version}" cannot be handled as a'
        raise bad_request(f"{about} {resource.kind}: strict decoding error: {listed}")
    if errors:
        raise _invalid(resource, made, errors)


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), registry=_registry())


@cache
def _registry() -> Registry[Object]:
    return Document.from_contents(definitions()) @ Registry()


def _unknown_fields(error: ValidationError) -> list[str]:
    if error.validator != "additionalProperties" or not isinstance(error.instance, dict):
        return []
    known = error.schema.get("properties", {})
    return [_path([*error.absolute_path, name]) for name in error.instance if name not in known]


def _invalid(resource: Resource, made: Object, errors: Iterable[ValidationError]) -> Refusal:
    name = made["metadata"].get("name", "")
    causes = [
        {"reason": "FieldValueInvalid", "field": _path(error.absolute_path), "message": said}
        for error in errors
        if (said := error.message[:300])
    ]
    listed = ", ".join(f"{cause['field'] or '<root>'}: {cause['message']}" for cause in causes)
    message = f'{resource.kind}.{resource.group} "{name}" is invalid: {listed}'
    return Refusal(422, "Invalid", message, name=name, kind=resource.kind, causes=causes)


def _path(steps: Iterable[str | int]) -> str:
    made = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return made.lstrip(".")
