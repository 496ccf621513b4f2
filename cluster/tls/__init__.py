"""Certificates: of clients' listeners, and of the fleet among itself."""
