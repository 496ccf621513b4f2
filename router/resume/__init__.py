"""Answers that another connection goes on with."""
