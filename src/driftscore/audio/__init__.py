"""Sound in, samples with their rate out.

Comes in: recordings (files, URLs, arrays). Goes out: mono samples in windows, levels, clock times.
May import: `storage`, `system`, `errors`.
"""
