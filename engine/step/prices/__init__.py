"""What steps, their parts and drafts cost, as measured: what plans are made of."""
