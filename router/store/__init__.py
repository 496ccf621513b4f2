"""What several routers of one fleet keep together: a Redis, and how this router reaches it."""
