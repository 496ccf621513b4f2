"""Where a fleet is, for every command that asks one: its router, or its release on Kubernetes.

    flag  >  SPLITSERVE_* variable  >  context  >  default

A context is whole: address, token and certificates belong together. Whoever names an address more
strongly than a context was named (--grpc beside the current context) leaves that context out, so
that its token goes nowhere else. What --context names wins over variables.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN, checked_token

if TYPE_CHECKING:
    from cli.context_file import FleetContext

DEFAULT_ROUTER = "127.0.0.1:50051"
GRPC_VARIABLE = "SPLITSERVE_GRPC"
CONTEXT_VARIABLE = "SPLITSERVE_CONTEXT"
_FLEET_TLS = "SPLITSERVE_FLEET_TLS"
PRICE_VARIABLE = "SPLITSERVE_PRICE"
NO_CONTEXT = "none"
_DEFAULT_IN_WORDS = f"the context's, else {DEFAULT_ROUTER}"

ROUTER_OPTION = typer.Option(
    "--grpc",
    metavar="HOST:PORT",
    help="the router's gRPC address",
    show_default=_DEFAULT_IN_WORDS,
)
ROUTERS_OPTION = typer.Option(
    "--grpc",
    metavar="HOST:PORT,...",
    help="gRPC addresses of one router or several",
    show_default=_DEFAULT_IN_WORDS,
)
GrpcAddress = Annotated[str, ROUTER_OPTION]
"""Of one router: where a context names several, of the first that listens."""
GrpcAddresses = Annotated[str, ROUTERS_OPTION]
"""Of all routers that were named, with commas."""
RELEASE_OPTION = typer.Option(
    "--kubernetes", metavar="[NAMESPACE/]RELEASE", help="of the chart, by your kubeconfig"
)
Release = Annotated[str, RELEASE_OPTION]
"""Where a fleet can be nowhere else."""
MaybeRelease = Annotated[str | None, RELEASE_OPTION]
"""None: the fleet is where its router is."""


class NamedBy(enum.IntEnum):
    """Of a word that names a fleet."""

    NOT_SAID = 0
    CURRENT = 1
    VARIABLE = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, and where it comes from in words."""

    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFleet:
    """What the commands of an operator go by. A value that is None: not said anywhere."""

    context: Setting
    router: Setting
    release: Setting
    join_token_file: Setting
    """None: the variable's token, else the home folder's."""
    fleet_tls: Setting
    price: Setting
    """Of an hour of its workers, by pool."""

    def one_router(self) -> str:
        """Of several the first that listens. Raises ConfigError where none is named."""
        return first_that_listens(routers_of(self.all_routers()))

    def all_routers(self) -> str:
        """With commas. Raises ConfigError where none is named."""
        if self.router.value is None:
            raise ConfigError(
                f"{self.release.source} names the release {self.release.value} and no router: name "
                "one with --grpc (kubectl port-forward brings it here), or with `splitserve "
                f"config set-context {self.context.value} --router HOST:PORT`",
                param="grpc",
            )
        return self.router.value

    @contextmanager
    def let_in(self) -> Iterator[None]:
        """Inside, this process's surroundings are those of an operator of this fleet. Raises
        ConfigError for a token that cannot be read."""
        said = {_FLEET_TLS: self.fleet_tls.value, PRICE_VARIABLE: self.price.value}
        if self.join_token_file.value is not None:
            said[JOIN_TOKEN] = _token_in(Path(self.join_token_file.value).expanduser())
        before = {name: os.environ.get(name) for name in said}
        _set_variables(said)
        try:
            yield
        finally:
            _set_variables(before)


def resolve_fleet(
    *,
    grpc: str | None = None,
    kubernetes: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> NamedFleet:
    """See the head of the file; what is None was not said by a flag. Raises ConfigError."""
    context_said, strength, found = _context(context, environ)
    at = environ.get(GRPC_VARIABLE)
    place = NamedBy.FLAG if grpc or kubernetes else NamedBy.VARIABLE if at else NamedBy.NOT_SAID
    if place > strength:
        by = "--grpc" if grpc else "--kubernetes" if kubernetes else GRPC_VARIABLE
        context_said = Setting(None, f"{by} names a fleet without one" if found else "default")
        strength, found = NamedBy.NOT_SAID, None
    words = _Words(f"context {context_said.value}", environ, wins=strength is NamedBy.FLAG)
    of = found or _no_context()
    is_release = kubernetes is not None or of.release is not None
    return NamedFleet(
        context=context_said,
        router=words.first(
            Setting(grpc, "--grpc"),
            *words.between(GRPC_VARIABLE, of.router),
            Setting(None if is_release else DEFAULT_ROUTER, "default"),
        ),
        release=words.first(
            Setting(kubernetes, "--kubernetes"), Setting(None if grpc else of.release, words.here)
        ),
        join_token_file=words.token_file(of.join_token_file),
        fleet_tls=words.first(*words.between(_FLEET_TLS, of.fleet_tls)),
        price=words.first(*words.between(PRICE_VARIABLE, of.price)),
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """Of one context and of the variables, in order."""

    here: str
    environ: Mapping[str, str]
    wins: bool = field(kw_only=True)
    """The context over the variables."""

    def between(self, variable: str, of_context: str | None) -> tuple[Setting, Setting]:
        by_context, by_variable = (
            Setting(of_context, self.here),
            Setting(self.environ.get(variable), variable),
        )
        return (by_context, by_variable) if self.wins else (by_variable, by_context)

    def first(self, *words: Setting) -> Setting:
        return next((each for each in words if each.value), Setting(None, "default"))

    def token_file(self, of_context: str | None) -> Setting:
        """None where the token is the variable's own, or the home folder's."""
        is_in_variable = bool(self.environ.get(JOIN_TOKEN))
        if of_context is not None and (self.wins or not is_in_variable):
            return Setting(of_context, self.here)
        return Setting(None, JOIN_TOKEN if is_in_variable else "default")


def _context(
    flag: str | None, environ: Mapping[str, str]
) -> tuple[Setting, NamedBy, FleetContext | None]:
    from cli.context_file import contexts_path, read_contexts

    named = flag or environ.get(CONTEXT_VARIABLE)
    source = "--context" if flag else CONTEXT_VARIABLE
    strength = NamedBy.FLAG if flag else NamedBy.VARIABLE
    if named == NO_CONTEXT:
        return Setting(None, f"{source} none"), strength, None
    path = contexts_path(environ)
    known = read_contexts(path)
    if named:
        return Setting(named, source), strength, known.named(named, path)
    if known.current is None:
        return Setting(None, "default"), NamedBy.NOT_SAID, None
    found = known.named(known.current, path)
    return Setting(known.current, f"current in {path}"), NamedBy.CURRENT, found


def _no_context() -> FleetContext:
    from cli.context_file import FleetContext

    return FleetContext()


def _token_in(path: Path) -> str:
    try:
        return checked_token(path.read_text(encoding="ascii").strip(), str(path))
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{path} cannot be read as a join token: {cause}") from cause


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def routers_of(addresses: str) -> list[str]:
    """Each of several with commas."""
    return [address.strip() for address in addresses.split(",")]


def first_that_listens(addresses: list[str]) -> str:
    """The first of all where none does: its failure is then told. One alone is not tried."""
    import socket

    for address in addresses[: len(addresses) if len(addresses) > 1 else 0]:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1.0).close()
        except (OSError, ValueError, OverflowError):
            continue
        return address
    return addresses[0]
