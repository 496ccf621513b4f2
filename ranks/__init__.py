"""The ranks of one replica: processes that share its matrices, and what they do together."""
