"""The server's part of blocks that go from worker to worker, whatever their roles."""
