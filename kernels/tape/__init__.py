"""A decoder's forward, recorded once as operations on rows, and what runs it on any device."""
