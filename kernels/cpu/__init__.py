"""Kernels for CPUs: a small native library built on first use, and torch where it cannot be."""
