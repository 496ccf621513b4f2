"""The engine's own process: its loop, its channel to the server, its threads."""
