"""One model replica: weights, layers, paged KV, batching, sampling. No network."""
