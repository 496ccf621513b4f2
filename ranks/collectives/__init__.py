"""What the ranks of a group compute together, by three ways of meeting."""
