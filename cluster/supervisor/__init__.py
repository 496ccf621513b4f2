"""Keeps the processes of one machine's fleet alive."""
