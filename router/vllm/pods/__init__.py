"""vLLM servers that are pods of a Kubernetes cluster."""
