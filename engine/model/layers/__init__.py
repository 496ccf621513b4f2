"""The parts of a decoder layer, each in the variants that families differ by."""
