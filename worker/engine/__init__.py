"""The server's side of its engine process."""
