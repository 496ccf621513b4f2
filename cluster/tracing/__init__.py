"""Spans of requests, and their way to an OpenTelemetry collector."""
