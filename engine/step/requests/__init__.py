"""Requests and their sequences, from submission to their one end."""
