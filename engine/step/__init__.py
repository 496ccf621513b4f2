"""One step after another: requests, the plan of a step, and what its tokens lead to."""
