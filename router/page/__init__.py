"""The page that operators look at: what it shows, who may see it, and its listener."""
