"""Kernels for CPUs: a small AVX-512 library built on first use, and torch where it cannot be."""
