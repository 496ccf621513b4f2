"""Fields of a body that nobody here knows, taken out and told about (`--unknown-fields warn`).

Every place where the schema forbids them is looked at: the body itself, its objects, and its lists
of objects. What is known stays byte for byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

MAX_NAMES = 16
"""Told of one body; more are taken out in silence."""
MAX_NAME_CHARS = 64
_Object = dict[str, msgspec.Raw]
_OBJECT = msgspec.json.Decoder(_Object)
_OBJECTS = msgspec.json.Decoder(list[_Object])
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.\[\]-]")


def without_unknown(body: bytes, schema: type[msgspec.Struct]) -> tuple[bytes, tuple[str, ...]]:
    """The body without what `schema` forbids, and the names of that: `foo`, `messages[].bar`.

    A body, or a part of one, that is no object where the schema has one comes back as it is:
    decoding it says what is wrong.
    """
    found = _Found()
    try:
        kept = found.known_of(_OBJECT.decode(body), _fields_of(schema), "")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body, ()
    return msgspec.json.encode(kept), tuple(found.names)


class _Found:
    """The names that one body has met."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def known_of(self, given: _Object, fields: _Fields, prefix: str) -> _Object:
        """An object's known fields, each without what is unknown in it."""
        if not fields.nested and given.keys() <= fields.known:
            return given
        for name in given:
            if name not in fields.known:
                self._note(prefix + name)
        kept = {name: raw for name, raw in given.items() if name in fields.known}
        for name in kept.keys() & fields.nested.keys():
            kept[name] = self._inside(kept[name], fields.nested[name], prefix + name)
        return kept

    def _inside(self, raw: msgspec.Raw, nested: _Nested, path: str) -> msgspec.Raw:
        inner = _fields_of(nested.schema)
        try:
            if nested.is_list:
                items = _OBJECTS.decode(raw)
                kept: Any = [self.known_of(item, inner, f"{path}[].") for item in items]
            else:
                kept = self.known_of(_OBJECT.decode(raw), inner, f"{path}.")
        except msgspec.ValidationError:
            return raw
        return msgspec.Raw(msgspec.json.encode(kept))

    def _note(self, name: str) -> None:
        if len(self.names) < MAX_NAMES:
            self.names[_NOT_PLAIN.sub("?", name[:MAX_NAME_CHARS])] = None


@dataclass(frozen=True, slots=True)
class _Nested:
    """A field that is an object with forbidden fields of its own, or a list of such."""

    schema: type
    is_list: bool


@dataclass(frozen=True, slots=True)
class _Fields:
    known: frozenset[str]
    nested: dict[str, _Nested]


@cache
def _fields_of(schema: type) -> _Fields:
    kind = inspect.type_info(schema)
    assert isinstance(kind, inspect.StructType)
    nested = {field.encode_name: found for field in kind.fields if (found := _nested(field.type))}
    return _Fields(frozenset(field.encode_name for field in kind.fields), nested)


def _nested(kind: inspect.Type) -> _Nested | None:
    for member in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        inner = member.item_type if isinstance(member, inspect.ListType) else member
        if isinstance(inner, inspect.StructType) and inner.forbid_unknown_fields:
            return _Nested(inner.cls, is_list=inner is not member)
    return None
