"""Fifty schemas as clients write them: nested, recursive, enums, unicode, unions, formats."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def closed(required: bool = True, **properties: Any) -> Schema:
    """An object of these properties and no others."""
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return schema | ({"required": list(properties)} if required else {})


def listed(items: Any, most: int = 3, least: int = 0) -> Schema:
    """A list that ends."""
    return {"type": "array", "items": items, "maxItems": most, "minItems": least}


TEXT: Schema = {"type": "string", "maxLength": 12}
NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 9999}
FLAG: Schema = {"type": "boolean"}
NODE = closed(name=TEXT, children=listed({"$ref": "#/$defs/node"}, 2))
CHAIN: Schema = {
    **closed(required=False, value=NUMBER, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    "required": ["value"],
}
CAT = closed(kind={"const": "cat"}, lives=NUMBER)
DOG = closed(kind={"const": "dog"}, good=FLAG)
FISH = closed(kind={"enum": ["fish", "eel"]}, depth=NUMBER)
PET: Schema = {
    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}, {"$ref": "#/$defs/Fish"}],
    "discriminator": {"propertyName": "kind"},
}
PETS = {"Cat": CAT, "Dog": DOG, "Fish": FISH}
EXPRESSION: Schema = {
    "anyOf": [
        NUMBER,
        closed(op={"enum": ["+", "-"]}, args=listed({"$ref": "#/$defs/expression"}, 2, 2)),
    ]
}

OWN: dict[str, Schema | bool] = {
    "person": closed(name=TEXT, age=NUMBER),
    "optional": closed(required=False, name=TEXT, age=NUMBER),
    "flags": closed(a=FLAG, b=FLAG, c=FLAG),
    "empty object": closed(),
    "nested": closed(a=closed(b=closed(c=closed(d=TEXT)))),
    "list of numbers": listed(NUMBER, 4),
    "list of lists": listed(listed(FLAG, 2), 2),
    "list of objects": listed(closed(x=NUMBER, y=NUMBER), 3, 1),
    "tuple": {"type": "array", "prefixItems": [TEXT, NUMBER], "items": False, "minItems": 2},
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "nullable": closed(a={"type": ["string", "null"], "maxLength": 5}),
    "types": {"type": ["boolean", "null"]},
    "const text": {"const": "done"},
    "const object": {"const": {"a": [1, 2, {"b": None}]}},
    "enum": {"enum": ["red", "green", "blue"]},
    "mixed enum": {"enum": ["one", 1, True, None, [2], {"three": 3}]},
    "enum in object": closed(color={"enum": ["red", "green"]}, size={"enum": [1, 2, 3]}),
    "unicode names": closed(**{"größe": NUMBER, "名前": TEXT, "🙂": FLAG}),
    "unicode enum": {"enum": ["žluťoučký", "кошка", "猫", "😀👍🏽", "a\u0301"]},
    "quotes in names": closed(**{'say "hi"': FLAG, "back\\slash": FLAG, "line\nbreak": FLAG}),
    "escapes in enum": {"enum": ['"', "\\", "\n\t", "\u2028", "/"]},
    "short text": {"type": "string", "minLength": 2, "maxLength": 4},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    "open pattern": {"type": "string", "pattern": "b[0-9]b", "maxLength": 8},
    "several patterns": closed(
        plate={"type": "string", "pattern": "^[A-Z]{3}[0-9]{2}$"},
        code={"type": "string", "pattern": "^(x|y)z?$"},
    ),
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "moment": closed(at={"type": "string", "format": "date-time"}),
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "bounds": {"type": "integer", "minimum": -5, "maximum": 5},
    "open bounds": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
    "number": {"type": "number", "minimum": 0, "maximum": 1},
    "multiple": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
    "map": {
        "type": "object",
        "additionalProperties": NUMBER,
        "maxProperties": 2,
    },
    "named map": {
        "type": "object",
        "patternProperties": {"^k[0-9]$": FLAG},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    "any of": {"anyOf": [NUMBER, FLAG, closed(a=TEXT)]},
    "all of": {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 8}]},
    "one of types": {"oneOf": [FLAG, NUMBER, {"type": "null"}]},
    "union by const": {"$defs": PETS, **PET},
    "union in list": {"$defs": PETS, **listed(PET, 2, 1)},
    "union in object": {"$defs": PETS, **closed(owner=TEXT, pet=PET)},
    "tree": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    "chain": CHAIN,
    "expression": {"$defs": {"expression": EXPRESSION}, "$ref": "#/$defs/expression"},
    "shared definitions": {
        "$defs": {"point": closed(x=NUMBER, y=NUMBER)},
        **closed(a={"$ref": "#/$defs/point"}, b={"$ref": "#/$defs/point"}),
    },
    "ref beside a title": {
        "$defs": {"name": TEXT},
        **closed(a={"$ref": "#/$defs/name", "title": "A", "description": "of a thing"}),
    },
    "invoice": closed(
        id={"type": "string", "pattern": "^INV-[0-9]{4}$"},
        lines=listed(
            closed(item=TEXT, count=NUMBER, price={"type": "number", "minimum": 0, "maximum": 99}),
            2,
            1,
        ),
        paid=FLAG,
        due={"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    ),
    "tool call": closed(
        name={"const": "get_weather"},
        arguments=closed(required=False, city=TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    ),
}
