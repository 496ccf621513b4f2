"""Stock vLLM servers as workers: aggregated, and pairs over NixlConnector."""
