"""The prefill role: chunked prefill and the export of KV blocks."""
