"""What guesses for all sequences of an engine: from their texts, or by a model."""
