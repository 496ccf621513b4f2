"""The services for workers and operators, and everything behind the front put together."""
