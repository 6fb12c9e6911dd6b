"""The command: each subcommand parses its options, makes one library call and prints.

Comes in: the words of a command line. Goes out: rows on stdout, messages and progress on stderr,
and a status: 0 done, 1 something failed, 2 wrong usage, 130 interrupted. May import every room.
"""
