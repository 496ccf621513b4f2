"""What a client is told, in OpenAI's shapes."""
