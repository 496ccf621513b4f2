"""Kubernetes' own schemas, of every version that the chart is for."""

from __future__ import annotations

import json
from functools import cache

import kubernetes_validate
from kubernetes_validate import utils

from tests.deploy.chart import Manifest

utils.schema_contents = cache(
    utils.schema_contents
)  # else two megabytes are read for each manifest


def check(manifest: Manifest, version: str) -> None:
    """Raises ValidationError for what that version does not know. Releases have most of their
    manifests in common, and each is looked at once."""
    _check(json.dumps(manifest, sort_keys=True), version)


@cache
def _check(text: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(text), version, strict=True)
