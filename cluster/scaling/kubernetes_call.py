"""One call to an API server, and what its answer means here.

The `kubernetes` package is imported when the first connection is opened: it is an extra.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.errors import LoginLost, WorkerLost
from cluster.scaling.kubernetes_login import NOT_KNOWN
from cluster.scaling.scaler import RefusalReason, ScaleRefused

TIMEOUT_S = 15.0
_NOBODY = 'User "system:anonymous"'
"""In what a server forbids to whoever shows nothing."""


async def called(call: Any, **arguments: Any) -> Any:
    """What it answers. Raises ScaleRefused where it says no, WorkerLost where it does not answer,
    and of that LoginLost where it does not know who asks."""
    from aiohttp import ClientError
    from kubernetes.aio.client.exceptions import ApiException

    try:
        return await call(_request_timeout=TIMEOUT_S, **arguments)
    except ApiException as refusal:
        raise refused(refusal.status, _message(refusal.body)) from refusal
    except (ClientError, OSError, TimeoutError) as cause:
        raise WorkerLost(f"the API server does not answer: {cause}") from cause


async def read_plain(call: Any, **arguments: Any) -> Any:
    """The same of a call without preloaded content, for long answers: what JSON has, and no models
    made of it."""

    async def read(**given: Any) -> tuple[int, bytes]:
        response = await call(**given)
        return response.status, await response.read()

    status, body = await called(read, **arguments)
    if status >= 300:
        raise refused(status, _message(body.decode(errors="replace")))
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as cause:
        raise WorkerLost(f"the API server's answer is no JSON: {cause}") from cause


def refused(status: int | None, message: str) -> ScaleRefused | WorkerLost:
    """What an answer of the API server means here. Its words name the verb that is forbidden. 422
    is of a patch whose test has failed; a server that is not well has refused nothing, nor has one
    that does not know who asks, or is shown nothing: somebody logs in again."""
    if status == NOT_KNOWN or (status == 403 and _NOBODY in message):
        return LoginLost(
            f"the API server does not know who asks ({message}), by what the kubeconfig has now: "
            "log in, and see `kubectl auth whoami`"
        )
    if status is None or status >= 500:
        return WorkerLost(f"the API server is not well: {message}")
    if "exceeded quota" in message:
        return ScaleRefused(RefusalReason.QUOTA, message)
    reasons = {
        403: RefusalReason.FORBIDDEN,
        404: RefusalReason.NO_SUCH_POOL,
        409: RefusalReason.CHANGING,
        422: RefusalReason.CHANGING,
        429: RefusalReason.DISRUPTION,
    }
    return ScaleRefused(reasons.get(status, RefusalReason.OPTIONS), message)


def _message(body: str | None) -> str:
    try:
        return str(msgspec.json.decode(body or "")["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body or "the API server gives no reason"
