"""From the bytes of a body to what is to be done; text workers do it, too."""
