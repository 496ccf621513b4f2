"""Where models come from, and how they are kept on this machine."""
