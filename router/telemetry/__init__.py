"""What is kept and counted for whoever looks after the router."""
