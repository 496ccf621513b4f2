"""Processes on the machines of a Ray cluster: placed by it, hosted by its actors."""
