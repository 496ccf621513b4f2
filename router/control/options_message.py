"""What a router was started with, for its operators."""

from __future__ import annotations

import json
from pathlib import Path

from cluster import VERSION
from cluster.config import RouterOptions
from cluster.masking import own_mask
from cluster.options import option_values
from protos import router_admin_pb2


def options_to_wire(options: RouterOptions) -> router_admin_pb2.OptionsResponse:
    """Passwords in them are masked, and what this process knows to be secret. Reads files: once."""
    named = (options.tls.tls_key, options.vllm_servers.vllm_key_file)
    mask = own_mask(Path(each) for each in named if each)
    values = mask.data(option_values(options))
    return router_admin_pb2.OptionsResponse(
        options=[
            router_admin_pb2.OptionValue(name=name, value=json.dumps(value))
            for name, value in values.items()
        ],
        version=VERSION,
    )
