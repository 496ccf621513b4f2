"""From a connection to one exchange: bytes in, bytes out, and an answer for every error."""
