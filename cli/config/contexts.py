"""Contexts as an operator sees and changes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cli.context_file import (
    FleetContext,
    changing_contexts,
    checked_name,
    contexts_path,
    read_contexts,
)
from cli.fleet_address import NO_CONTEXT, NamedFleet, Setting, resolve_fleet
from cli.inspect.prices import prices_of
from cli.terminal import say
from cli.view import Sheet, View
from cluster.errors import ConfigError

_ADDRESS = re.compile(r"[^\s:,/@]+:([0-9]{1,5})")
_RELEASE = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_SETTINGS = {
    "context": "context",
    "router": "router",
    "release": "release",
    "join_token_file": "join token",
    "fleet_tls": "fleet TLS",
    "price": "price",
}


def contexts_view() -> View:
    """All that the file has. Raises ConfigError."""
    path = contexts_path()
    known = read_contexts(path)
    rows = [
        (
            "*" if name == known.current else "",
            name,
            each.router or "-",
            each.release or "-",
            each.join_token_file or "-",
            each.fleet_tls or "-",
            each.price or "-",
        )
        for name, each in sorted(known.contexts.items())
    ]
    data = [
        {"name": name, "current": name == known.current, **msgspec.structs.asdict(each)}
        for name, each in sorted(known.contexts.items())
    ]
    heading = ("CURRENT", "NAME", "ROUTER", "RELEASE", "JOIN TOKEN FILE", "FLEET TLS", "PRICE")
    return View(data, [Sheet(heading, rows, num_wide=3)], nothing=f"no contexts in {path}")


def current_view(context: str | None) -> View:
    """What another command would go by. Raises ConfigError."""
    fleet = resolve_fleet(context=context)
    said = {name: _said(fleet, name) for name in _SETTINGS}
    data = {name: {"value": each.value, "from": each.source} for name, each in said.items()}
    rows = [(_SETTINGS[name], each.value or "-", each.source) for name, each in said.items()]
    return View(data, [Sheet(("SETTING", "VALUE", "FROM"), rows)])


def use_context(name: str) -> None:
    """Raises ConfigError for one that is not there."""
    path = contexts_path()
    with changing_contexts(path) as held:
        if name != NO_CONTEXT:
            held[0].named(name, path)
        held[0] = msgspec.structs.replace(held[0], current=None if name == NO_CONTEXT else name)
    say(f"the current context is {name}" if name != NO_CONTEXT else "there is no current context")


def change_context(name: str, words: Mapping[str, str | None]) -> None:
    """`words` by the fields of FleetContext; None leaves a field as it is, "none" empties it.
    Raises ConfigError for a name or a word that is none."""
    checked_name(name)
    said = {field: _checked(field, word) for field, word in words.items() if word is not None}
    path = contexts_path()
    with changing_contexts(path) as held:
        is_new = name not in held[0].contexts
        changed = msgspec.structs.replace(held[0].contexts.get(name, FleetContext()), **said)
        held[0] = msgspec.structs.replace(held[0], contexts={**held[0].contexts, name: changed})
        is_current = held[0].current == name
    say(f"{name} is {'new' if is_new else 'changed'} in {path}")
    if not is_current:
        say(f"  use it: splitserve config use-context {name}")


def delete_context(name: str) -> None:
    """Raises ConfigError for one that is not there."""
    path = contexts_path()
    with changing_contexts(path) as held:
        held[0].named(name, path)
        kept = {each: context for each, context in held[0].contexts.items() if each != name}
        current = None if held[0].current == name else held[0].current
        held[0] = msgspec.structs.replace(held[0], contexts=kept, current=current)
    say(f"{name} is no context any more")


def _said(fleet: NamedFleet, name: str) -> Setting:
    found: Setting = getattr(fleet, name)
    return found


def _checked(field: str, word: str) -> str | None:
    """Files become absolute: a context is good from any folder."""
    if word == NO_CONTEXT:
        return None
    if field == "router":
        return ",".join(_checked_address(each.strip()) for each in word.split(","))
    if field == "release":
        if _RELEASE.fullmatch(word) is None:
            raise ConfigError(f"--kubernetes is {word!r}; write NAMESPACE/RELEASE", param=field)
        return word
    if field == "price":
        prices_of(word)
        return word
    return str(Path(word).expanduser().absolute())


def _checked_address(word: str) -> str:
    found = _ADDRESS.fullmatch(word)
    if found is None or not 0 < int(found[1]) < 65_536:
        raise ConfigError(f"--router is {word!r}; write HOST:PORT", param="router")
    return word
