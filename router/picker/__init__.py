"""The router as a gateway's endpoint picker, over Envoy's protocol of external processing."""
