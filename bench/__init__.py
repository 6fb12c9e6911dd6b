"""The benchmarks behind docs/bench.md: run by `make bench`, one part per file."""
