"""One question to all routers of a fleet, side by side: who is away is told, and left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cli.exit_code import ExitCode
from cli.fleet_address import routers_of
from cli.question import complained
from cli.view import View
from cluster.dial.dialer import Dialer, OperatorLink
from cluster.dial.grpc_dialer import GrpcDialer
from cluster.errors import SplitserveError
from cluster.join_token import operators_token

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RoutersHeard(Generic[Answer]):
    """By the routers' addresses."""

    answers: dict[str, Answer]
    failures: dict[str, SplitserveError]


def ask_routers(
    addresses: str,
    ask: Callable[[OperatorLink], Awaitable[Answer]],
    show: Callable[[RoutersHeard[Answer]], View],
    *,
    form: str,
    dialer: Dialer | None = None,
) -> ExitCode:
    """`addresses`: with commas. Shows what those say who answer; where none does, the exit code is
    of the first one's failure."""
    heard = asyncio.run(_ask_all(dialer or GrpcDialer(operators_token()), addresses, ask))
    codes = [complained(failure, router) for router, failure in heard.failures.items()]
    if not heard.answers:
        return codes[0]
    show(heard).print(form)
    return ExitCode.OK


async def _ask_all(
    dialer: Dialer, addresses: str, ask: Callable[[OperatorLink], Awaitable[Answer]]
) -> RoutersHeard[Answer]:
    """Each once."""
    routers = list(dict.fromkeys(routers_of(addresses)))
    told = await asyncio.gather(*(_ask(dialer, router, ask) for router in routers))
    heard: RoutersHeard[Answer] = RoutersHeard({}, {})
    for router, said in zip(routers, told, strict=True):
        if isinstance(said, SplitserveError):
            heard.failures[router] = said
        else:
            heard.answers[router] = said
    return heard


async def _ask(
    dialer: Dialer, address: str, ask: Callable[[OperatorLink], Awaitable[Answer]]
) -> Answer | SplitserveError:
    link = dialer.operator(address)
    try:
        return await ask(link)
    except SplitserveError as failure:
        return failure
    finally:
        await link.close()
