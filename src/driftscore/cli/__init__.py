"""The command: each subcommand parses its options, makes one library call and prints.

stdout is data, stderr is messages and progress; exit 0 done, 1 something failed, 2 wrong usage,
130 interrupted.
"""

import os

# Before numpy is imported. A command works on several recordings at once; threads of the BLAS
# would take the cores from them, and wait for each other longer than its small products take.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
