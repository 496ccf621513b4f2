"""Files on this machine's disk: read with limits, landed whole, told apart by their digests."""
