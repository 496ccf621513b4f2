"""A request on its way: admitted, routed, sent, relayed, accounted for."""
