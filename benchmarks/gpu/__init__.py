"""GPU kernels beside what the device allows; `python -m benchmarks.bench_gpu` runs all."""
