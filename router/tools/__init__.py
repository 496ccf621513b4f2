"""How models write calls of tools and thoughts, read while it comes."""
