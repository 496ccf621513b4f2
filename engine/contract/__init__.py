"""What goes in and out of an engine process: commands, messages, and what it is to load."""
