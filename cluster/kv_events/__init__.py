"""What workers say of their prefix caches, over ZMQ."""
