"""What steps, their parts and drafts take, as measured: what plans are made of, and loads."""
