"""`splitserve support-bundle`: what is known of a fleet, in one file that may be given away."""
