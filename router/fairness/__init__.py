"""Whose turn it is: shares of tenants by tokens that were computed, classes, and deadlines."""
