"""A replica on several ranks: one plans and samples, all compute."""
