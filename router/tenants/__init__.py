"""Who may ask, and how often: API keys and the tenants that they belong to."""
