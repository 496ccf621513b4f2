"""Models as files: sources, the cache, configuration, tokenizer and chat template. No torch."""
