"""The workers as this router sees them: who is there, how they are, the stream to each."""
