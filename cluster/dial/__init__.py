"""The clients' side of the wire: one seam, one gRPC adapter."""
