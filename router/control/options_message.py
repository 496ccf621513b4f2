"""What a router was started with, for its operators."""

from __future__ import annotations

import json
from pathlib import Path

from cluster import VERSION
from cluster.config import RouterOptions
from cluster.options import option_values
from cluster.redaction import own_redactor
from protos import router_admin_pb2


def options_to_wire(options: RouterOptions) -> router_admin_pb2.OptionsResponse:
    """Without passwords, and what this process knows to be secret. Reads files: once."""
    named = (options.tls.tls_key, options.vllm_servers.vllm_key_file)
    redactor = own_redactor(Path(each) for each in named if each)
    values = redactor.data(option_values(options))
    return router_admin_pb2.OptionsResponse(
        options=[
            router_admin_pb2.OptionValue(name=name, value=json.dumps(value))
            for name, value in values.items()
        ],
        version=VERSION,
    )
