"""Bytes and files of any kind; knows nothing of sound or models.

Comes in: paths, URLs, bytes. Goes out: files written atomically, checked values, arrays, tables.
May import: `system`, `errors`, `version`.
"""
