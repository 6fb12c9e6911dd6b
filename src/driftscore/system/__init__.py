"""The process and the installation: plug-ins by name, progress bars, signals, streams.

Comes in: names, counts, signals. Goes out: plug-in objects, bars on stderr, `Interrupted`.
May import: `errors` only.
"""
