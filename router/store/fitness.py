"""Whether a store that has come knows all that routers ask of it: looked at once a connection. One
that lacks something is told about by name and version, and used for all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.store.link import StoreCommand, StoreRefusal, StoreReply

LEAST_VERSION = (6, 2)
MAX_DIGITS = 9
NEEDED = (
    *("DEL", "EVALSHA", "EXISTS", "EXPIRE", "GET", "HDEL", "HGET", "HINCRBY", "HSCAN", "HSET"),
    *("HSETNX", "INCR", "LLEN", "LRANGE", "LTRIM", "MGET", "PEXPIRE", "PING", "PTTL", "RPUSH"),
    *("SADD", "SCRIPT", "SET", "SISMEMBER", "SMEMBERS", "SREM", "SSCAN", "TIME", "UNLINK"),
    *("XADD", "XREAD", "ZADD", "ZINCRBY", "ZMSCORE", "ZREMRANGEBYRANK", "ZSCORE"),
)
"""Commands, those of scripts as well."""
QUESTIONS: tuple[StoreCommand, ...] = (("INFO", "server"), ("COMMAND", "INFO", *NEEDED))
"""A store that may not be asked them is taken as it is: each topic tells what it is refused."""


def what_it_lacks(replies: Sequence[StoreReply | StoreRefusal]) -> str:
    """To QUESTIONS; in words for the log, and empty where nothing is missing."""
    info, commands = replies
    facts = _facts_in(info)
    found = [] if _is_new_enough(facts) else [f"{_name_of(facts)} is older than 6.2"]
    if facts.get("redis_mode") == "cluster":
        found.append("it is one of a cluster, which refuses calls about several keys")
    if missing := _missing_in(commands):
        found.append(f"{_name_of(facts)} does not know {', '.join(missing)}")
    return "; ".join(found)


def _facts_in(info: StoreReply | StoreRefusal) -> dict[str, str]:
    if not isinstance(info, bytes):
        return {}
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _name_of(facts: Mapping[str, str]) -> str:
    name = facts.get("server_name", "redis")
    version = facts.get(f"{name}_version") or facts.get("redis_version", "of an unknown version")
    return f"{name} {version}"


def _is_new_enough(facts: Mapping[str, str]) -> bool:
    """What says no version is believed to be."""
    parts = facts.get("redis_version", "").split(".")[: len(LEAST_VERSION)]
    are_numbers = all(part.isdecimal() and len(part) < MAX_DIGITS for part in parts)
    return not are_numbers or tuple(map(int, parts)) >= LEAST_VERSION


def _missing_in(commands: StoreReply | StoreRefusal) -> list[str]:
    if not isinstance(commands, list) or len(commands) != len(NEEDED):
        return []
    return [name for name, known in zip(NEEDED, commands, strict=True) if not known]
