"""Model files on this machine: where they come from, and how they are kept whole."""
