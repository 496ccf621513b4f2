"""What an engine says: frames, loads, the queue."""
