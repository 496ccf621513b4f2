"""A request as it was understood, for whoever goes on with its answer."""

from __future__ import annotations

import msgspec

from cluster.adapter import Adapter
from cluster.block_hash import unpack_tokens
from cluster.errors import NotResumable
from cluster.sampling import SamplingParams
from router.dispatch.stream import RoutedRequest
from router.dispatch.time_limits import TimeLimits
from router.front.generation_request import TextOptions
from router.front.prepared_generation import PreparedGeneration
from router.front.served_model import ServedModel
from router.resume.record import Record
from router.tenants.tenant import Tenant

VERSION = 4
"""Of what is written of an answer, its record too (router/resume/record.py): raise it with either.
Routers of two versions share a store while a fleet is updated. A new kind of entry raises nothing:
who does not know it refuses the answer where it meets one."""


class KeptRequest(msgspec.Struct, frozen=True, array_like=True):
    """See above."""

    version: int
    door: str
    """Where it came in; only there it goes on."""
    told_as: bytes
    """What the door needs to tell it in the same words."""
    model: tuple[str, str]
    """Name and fingerprint."""
    packed_prompt: bytes
    sampling: SamplingParams
    is_default_length: bool
    expected_tokens: int | None
    tenant_salt: str
    stops: tuple[str, ...]
    keep_tokens: bool
    text: TextOptions
    adapter: Adapter | None
    """As it was asked for: once it has begun, the version that began it goes on with it."""

    @classmethod
    def of(
        cls, prepared: PreparedGeneration, model: ServedModel, door: str, told_as: bytes
    ) -> KeptRequest:
        """Of an answer that begins."""
        routed = prepared.routed
        return cls(
            version=VERSION,
            door=door,
            told_as=told_as,
            model=(model.name, model.fingerprint),
            packed_prompt=routed.packed,
            sampling=routed.sampling,
            is_default_length=routed.is_default_length,
            expected_tokens=routed.expected_tokens,
            tenant_salt=routed.tenant_salt,
            stops=prepared.stops.strings,
            keep_tokens=prepared.keep_tokens,
            text=prepared.text,
            adapter=routed.adapter,
        )

    @classmethod
    def read(cls, head: bytes) -> KeptRequest:
        """Raises NotResumable for what a router of another version wrote."""
        try:
            request = msgspec.msgpack.decode(head, type=cls)
        except msgspec.MsgspecError:
            raise of_another_version() from None
        if request.version != VERSION:
            raise of_another_version()
        return request

    def routed(
        self, record: Record, tenant: Tenant, limits: TimeLimits, request_id: str
    ) -> RoutedRequest:
        """As it goes on. Once it has begun its length is what its first worker had room for."""
        sampling, is_default_length = self.sampling, self.is_default_length
        adapter, first_part = self.adapter, record.first_part
        if adapter is not None and first_part is not None:
            adapter = Adapter(adapter.name, first_part.adapter_digest)
        if record.max_tokens is not None:
            sampling = msgspec.structs.replace(sampling, max_tokens=record.max_tokens)
            is_default_length = False
        return RoutedRequest(
            request_id=request_id,
            token_ids=unpack_tokens(self.packed_prompt),
            sampling=sampling,
            is_default_length=is_default_length,
            tenant=tenant.name,
            weight=tenant.weight,
            priority=tenant.priority,
            expected_tokens=self.expected_tokens,
            tenant_salt=self.tenant_salt,
            limits=limits,
            first_part=first_part,
            adapter=adapter,
        )


def of_another_version() -> NotResumable:
    """To be raised."""
    return NotResumable(
        "this answer was begun at a router of another version, which writes answers in another "
        "way. Send the request anew"
    )
