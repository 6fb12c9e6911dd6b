"""The benchmarks behind docs/bench.md: `make bench`, one part a file."""
