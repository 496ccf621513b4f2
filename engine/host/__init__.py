"""The server process's side of an engine: requests in, events routed to who asked; no torch."""
