"""What every worker process has in common, whatever its role; no torch and no engine."""
