"""A login as it is read: a kubeconfig's context with what its plugin gives, or a pod's account.

The `kubernetes` package is imported when the first login is read: it is an extra.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from cluster.errors import LoginLost
from cluster.scaling.login_plugin import PluginFailed, answer_of

TOKEN = "BearerToken"
"""Its key in a client's configuration."""


class Credentials(NamedTuple):
    """As they are shown to the server."""

    token: str | None
    certificate: bytes
    """Of the client, with its key; empty: none."""


class Login(NamedTuple):
    """As it was read."""

    configuration: Any
    context: str | None
    """Of the kubeconfig; None in a pod."""
    ends_at: datetime | None
    """None: not known."""

    @property
    def credentials(self) -> Credentials:
        """Raises OSError for files that are no more."""
        given = self.configuration
        files = [name for name in (given.cert_file, given.key_file) if name]
        certificate = b"".join(Path(name).read_bytes() for name in files)
        return Credentials(given.api_key.get(TOKEN), certificate)


async def read_login(context: str | None, *, is_alone: bool) -> Login:
    """`context`: None for the current one. `is_alone`: see `answer_of`. Raises what the package
    does, OSError, and LoginLost where a plugin was to give a login and none came."""
    from kubernetes.aio import client, config
    from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration, places = client.Configuration(), config.KUBE_CONFIG_DEFAULT_LOCATION
    if not any(Path(place).expanduser().exists() for place in places.split(os.pathsep) if place):
        config.load_incluster_config(client_configuration=configuration)
        return Login(configuration, None, None)
    merged = KubeConfigMerger(places).config
    loader = KubeConfigLoader(merged, active_context=context, config_base_path=None)
    plugin = _Plugin(loader, is_alone)
    loader.load_from_exec_plugin = plugin.load
    await loader.load_and_set(configuration)
    login = Login(configuration, loader.current_context["name"], plugin.ends_at)
    if plugin.failure and not any(login.credentials):
        raise LoginLost(
            f"the kubeconfig's plugin gave no login ({plugin.failure}): log in, and try again"
        )
    return login


class _Plugin:
    """Of one loader, in the place of the package's own: that one hides why nothing came."""

    def __init__(self, loader: Any, is_alone: bool) -> None:
        self._loader = loader
        self._is_alone = is_alone
        self.failure = ""
        """Why it gave nothing; empty: it did, or there is none."""
        self.ends_at: datetime | None = None

    async def load(self) -> bool:
        """False: the user's own token, or password, is taken."""
        from kubernetes.aio.config import ConfigException

        try:
            status = await answer_of(self._loader._user["exec"], is_alone=self._is_alone)
            self._take(status)
        except (PluginFailed, ConfigException, OSError) as cause:
            self.failure = str(cause)
        return not self.failure

    def _take(self, status: Mapping[str, Any]) -> None:
        token = status.get("token")
        has_certificate = bool(status.get("clientCertificateData") and status.get("clientKeyData"))
        if not (token or has_certificate):
            raise PluginFailed("it printed neither a token nor a certificate with its key")
        if token:
            self._loader.token = f"Bearer {token}"
        if has_certificate:
            self._loader.cert_file = _file_of(status, "clientCertificateData")
            self._loader.key_file = _file_of(status, "clientKeyData")
        self.ends_at = _moment(status.get("expirationTimestamp"))


def _file_of(status: Mapping[str, Any], key: str) -> str:
    """The package removes it when this process ends."""
    from kubernetes.aio.config.kube_config import FileOrData

    given = FileOrData(status, None, data_key_name=key, base64_file_content=False)
    return str(given.as_file())


def _moment(said: Any) -> datetime | None:
    """None for what is no time: then it is known when the server says 401."""
    from kubernetes.aio.config.dateutil import parse_rfc3339

    try:
        moment: datetime = parse_rfc3339(said)
    except (ValueError, AttributeError):
        return None
    return moment
