"""Two vLLM prefill servers and a decode server, and what is asked of them: see bench_vllm."""
