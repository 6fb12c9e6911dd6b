"""The command: each subcommand parses its options, makes one library call and prints.

stdout is data, stderr is messages and progress; exit 0 done, 1 something failed, 2 wrong usage,
130 interrupted.
"""
