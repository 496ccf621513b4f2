"""A worker's server process: what both roles share."""
