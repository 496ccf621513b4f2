"""`splitserve config ...`: options as they are resolved, and contexts."""
