"""Fifty schemas as clients write them: nested, recursive, enums, other alphabets, unions."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
SHORT: Schema = {"type": "string", "maxLength": 12}


def record(_required: bool = True, **properties: Schema) -> Schema:
    """Closed; all of it is required, or nothing."""
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": list(properties)} if _required else made


def listed(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def tagged(name: str, **properties: Schema) -> Schema:
    """One member of a discriminated union, as pydantic writes it."""
    return record(kind={"const": name, "type": "string"}, **properties)


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def rooted(name: str, **defs: Schema) -> Schema:
    return {"$defs": defs, **ref(name)}


def deep(levels: int, leaf: Schema) -> Schema:
    schema = leaf
    for level in range(levels):
        schema = record(**{f"level_{level}": schema})
    return schema


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_TREE = record(value=WHOLE, children=listed(ref("Node"), maxItems=2))
_CHAIN = record(value=SHORT, next=maybe(ref("Link")))
_SHAPES = {
    "Circle": tagged("circle", radius=NUMBER),
    "Square": tagged("square", side=NUMBER),
    "Group": tagged("group", parts=listed({"oneOf": [ref("Circle"), ref("Square")]}, maxItems=3)),
}
_PAIRS = {"type": "object", "additionalProperties": WHOLE}
_OPEN: Schema = {"type": "object", "properties": {"id": WHOLE}, "required": ["id"]}

OWN: dict[str, Schema] = {
    # nested
    "a person": record(name=SHORT, age={**WHOLE, "minimum": 0, "maximum": 150}),
    "an address in a person": record(name=SHORT, home=record(street=SHORT, number=WHOLE)),
    "lists of lists": listed(listed(listed(WHOLE, maxItems=2), maxItems=2), maxItems=2),
    "ten deep": deep(10, TEXT),
    "twenty deep": deep(20, {"type": "boolean"}),
    "an order with lines": record(
        id=WHOLE,
        lines=listed(record(sku=SHORT, count={**WHOLE, "minimum": 1}, price=NUMBER), minItems=1),
        total={"type": "number", "minimum": 0},
    ),
    "a matrix of three by three": listed(
        listed(NUMBER, minItems=3, maxItems=3), minItems=3, maxItems=3
    ),
    "nothing is required": record(_required=False, a=WHOLE, b=SHORT, c={"type": "boolean"}),
    "one is required": {**record(_required=False, a=WHOLE, b=SHORT, c=WHOLE), "required": ["b"]},
    "an empty object": record(),
    "an open object": _OPEN,
    "a map of numbers": _PAIRS,
    "a map in a map": {"type": "object", "additionalProperties": _PAIRS},
    "names by a pattern": {
        "type": "object",
        "patternProperties": {"^x_[a-z]{1,4}$": WHOLE},
        "additionalProperties": False,
    },
    "a tuple": {
        "type": "array",
        "prefixItems": [WHOLE, SHORT, {"type": "boolean"}],
        "items": False,
        "minItems": 3,
    },
    "a tuple and more": {"type": "array", "prefixItems": [SHORT], "items": WHOLE},
    "two to four": listed(SHORT, minItems=2, maxItems=4),
    "several types": record(id={"type": ["integer", "string", "null"]}),
    # numbers and texts
    "numbers with bounds": record(
        low={**WHOLE, "exclusiveMinimum": -5, "maximum": 5},
        share={**NUMBER, "minimum": 0, "maximum": 1},
    ),
    "a number of many digits": record(big={**WHOLE, "minimum": 10**12}),
    "multiples": record(even={**WHOLE, "multipleOf": 2, "minimum": 0, "maximum": 100}),
    "a pattern": record(plate={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
    "lengths": record(code={"type": "string", "minLength": 3, "maxLength": 5}),
    "a date and a time": record(
        day={"type": "string", "format": "date"}, at={"type": "string", "format": "date-time"}
    ),
    "an id and a mail": record(
        id={"type": "string", "format": "uuid"}, mail={"type": "string", "format": "email"}
    ),
    # enums and constants
    "an enum": record(unit={"enum": ["C", "F"]}),
    "an enum of everything": {"enum": [1, "1", None, True, [1, {"a": 2}], {"b": []}, 2.5]},
    "an enum of a hundred": record(word={"enum": [f"word {i}" for i in range(100)]}),
    "words that begin alike": {"enum": ["a", "aa", "aaa", "ab", "aab", ""]},
    "quotes and backslashes": {"enum": ['"', "\\", '\\"', "\n\t", "/", "a\u0000b"]},
    "a constant object": {"const": {"a": [1, 2, {"b": None}], "c": "d"}},
    "constants of each type": record(
        a={"const": 1}, b={"const": "x"}, c={"const": None}, d={"const": False}
    ),
    # other alphabets
    "names in Greek": record(όνομα=SHORT, ηλικία=WHOLE),
    "names in Chinese": {
        **record(**{"城市": SHORT, "溫度": NUMBER}),
        "description": "天氣",
    },
    "an enum of smileys": {"enum": ["😀", "👩‍👩‍👧", "é", "e\u0301", "\u2028", "ﷺ"]},
    "names with spaces and signs": record(**{"a b": WHOLE, 'c"d': WHOLE, "e\\f": WHOLE, "": WHOLE}),
    "a pattern of Cyrillic": record(слово={"type": "string", "pattern": "^[а-я]{1,6}$"}),
    # recursive
    "a tree": rooted("Node", Node=_TREE),
    "a chain": rooted("Link", Link=_CHAIN),
    "a chat that quotes itself": rooted(
        "Message", Message=record(text=SHORT, quotes=listed(ref("Message"), maxItems=1))
    ),
    "an expression": rooted(
        "Term",
        Term={"anyOf": [WHOLE, ref("Sum")]},
        Sum=record(op={"enum": ["+", "-"]}, left=ref("Term"), right=ref("Term")),
    ),
    "two that hold each other": rooted(
        "A", A=record(b=maybe(ref("B"))), B=record(a=maybe(ref("A")))
    ),
    "itself by #": record(name=SHORT, parent=maybe({"$ref": "#"})),
    # unions
    "a discriminated union": {
        "$defs": _SHAPES,
        "oneOf": [ref("Circle"), ref("Square"), ref("Group")],
        "discriminator": {"propertyName": "kind", "mapping": {"circle": "#/$defs/Circle"}},
    },
    "a list of a union": {
        "$defs": _SHAPES,
        **record(shapes=listed({"oneOf": [ref("Circle"), ref("Square")]}, maxItems=3)),
    },
    "a union of types": {"oneOf": [WHOLE, SHORT, {"type": "null"}, listed(WHOLE, maxItems=2)]},
    "events of eight kinds": {"oneOf": [tagged(f"e{i}", **{f"of_{i}": WHOLE}) for i in range(8)]},
    "anyOf with common names": {"anyOf": [record(a=WHOLE), record(a=SHORT, b=WHOLE)]},
    "allOf of two": {
        "allOf": [
            {"type": "object", "properties": {"a": WHOLE}, "required": ["a"]},
            {"type": "object", "properties": {"b": SHORT}, "required": ["b"]},
        ]
    },
    "a title and a default": record(
        n={**WHOLE, "title": "N", "default": 3, "examples": [1]}, s={**SHORT, "description": "x"}
    ),
}
