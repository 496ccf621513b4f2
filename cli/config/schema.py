"""JSON Schema of a file of options: it accepts what the program accepts, and refuses what it
refuses. (That two ports differ is the one rule that the language has no words for.)

A key of another process of the fleet is no error in a file that they share, and its value is that
process's concern; `serve` is the whole fleet, and refuses what belongs to one worker.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterable
from typing import Any

from cli.config.roles import ProcessKind, processes
from cluster.common_options import IN_STORE
from cluster.config import RouterOptions, ServeOptions
from cluster.option_value import SIZE_UNITS, OptionSpec
from cluster.options import known_specs, option_specs

FileSchema = dict[str, Any]
_ABSENT = "([nN][oO][nN][eE]|[aA][uU][tT][oO])?"
_END = r"$(?!\n)"
"""Not before a last line's end, as the regular expressions of some languages have it."""
_SPACE = r"[ \t]*"


def config_schema(kind: ProcessKind | None) -> FileSchema:
    """Of a file for one process, or for all of a fleet."""
    classes = processes(kind)
    known = option_specs(ServeOptions) if kind is ProcessKind.SERVE else known_specs()
    schema: FileSchema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"options of splitserve {kind or '(all processes)'}",
        "$comment": "beyond this, port, grpc_port and fleet_port differ unless they are 0",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _property(name, classes) for name in known},
    }
    is_routers = any(cls in (RouterOptions, ServeOptions) for cls in classes)
    return schema | ({"allOf": _rules()} if is_routers else {})


def value_schema(spec: OptionSpec) -> FileSchema:
    """Of one option in a file."""
    forms = list(_forms(spec))
    value = forms[0] if len(forms) == 1 else {"anyOf": forms}
    default = getattr(spec.default, "value", spec.default)
    told = {} if default is None else {"default": default}
    return {"description": spec.help, **told, **value}


def _property(name: str, classes: Iterable[type]) -> FileSchema:
    """All that have it must accept it."""
    specs = [specs[name] for cls in classes if name in (specs := option_specs(cls))]
    schemas: list[FileSchema] = []
    for schema in map(value_schema, specs):
        if schema not in schemas:
            schemas.append(schema)
    if not schemas:
        return {"description": f"of another process: {known_specs()[name].help}"}
    return schemas[0] if len(schemas) == 1 else {"allOf": schemas}


def _forms(spec: OptionSpec) -> Iterable[FileSchema]:
    if issubclass(spec.kind, enum.Enum):
        yield {"enum": [str(member.value) for member in spec.kind]}
    elif spec.kind is bool:
        yield {"type": "boolean"}
    elif spec.kind is str:
        yield _text(spec)
    else:
        yield _number(spec)
        if spec.is_size:
            yield {"type": "string", "pattern": _size_pattern(math.ceil(spec.low or 0))}
    if spec.optional and not (spec.kind is str and not spec.choices):
        yield {"type": "string", "pattern": f"^{_ABSENT}{_END}"}


def _text(spec: OptionSpec) -> FileSchema:
    if spec.choices:
        return {"enum": list(spec.choices)}
    schema: FileSchema = {"type": "string"}
    if not spec.optional:
        schema["minLength"] = 1
    if spec.form is not None:
        pattern = f"{spec.form.pattern}|{_ABSENT}" if spec.optional else spec.form.pattern
        schema["pattern"] = f"^({pattern}){_END}"
    return schema


def _number(spec: OptionSpec) -> FileSchema:
    if spec.kind is int:
        limits = {"minimum": spec.low, "maximum": spec.high}
        kind = "integer"
    else:
        most = sys.float_info.max
        kind = "number"
        limits = {
            "minimum": -most if spec.low is None else spec.low,
            "maximum": most if spec.high is None else spec.high,
        }
    return {"type": kind} | {name: limit for name, limit in limits.items() if limit is not None}


def _size_pattern(low: int) -> str:
    """Of sizes such as 512MiB, of `low` bytes or more."""
    forms = []
    for unit, factor in SIZE_UNITS.items():
        letters = "".join(f"[{letter}{letter.upper()}]" for letter in unit)
        written = f"({letters})?" if unit == "b" else letters
        forms.append(f"{at_least(-(-low // factor))}{_SPACE}{written}")
    return f"^{_SPACE}({'|'.join(forms)}){_SPACE}{_END}"


def at_least(low: int) -> str:
    """A pattern of whole numbers of `low` or more, leading zeros allowed."""
    if low == 0:
        return "[0-9]+"
    digits = str(low)
    forms = [f"[0-9]*[1-9][0-9]{{{len(digits)},}}", f"0*{digits}"]  # longer; the same
    for place, digit in enumerate(digits):
        if digit != "9":
            more = f"[{int(digit) + 1}-9][0-9]{{{len(digits) - place - 1}}}"
            forms.append(f"0*{digits[:place]}{more}")
    return f"({'|'.join(forms)})"


def _rules() -> list[FileSchema]:
    """Of options that need each other; see TlsOptions, StoreOptions and RouterOptions."""
    from_store = {"required": ["api_keys"], "properties": {"api_keys": {"const": IN_STORE}}}
    return [
        {"if": _is_said("tls_cert"), "then": _is_said("tls_key")},
        {"if": _is_said("tls_key"), "then": _is_said("tls_cert")},
        {"if": _is_said("tls_client_ca"), "then": _is_said("tls_cert")},
        {"if": from_store, "then": _is_said("store")},
        {"if": _is_said("ext_proc_port"), "then": _is_said("vllm")},
    ]


def _is_said(name: str) -> FileSchema:
    """Matches a file with this option, and a value: none of the words that stand for "not set"."""
    absent = {"type": "string", "pattern": f"^{_ABSENT}{_END}"}
    return {"required": [name], "properties": {name: {"not": absent}}}
