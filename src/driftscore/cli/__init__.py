"""The command: each subcommand parses its options, makes one library call and prints.

stdout is data, stderr is messages and progress; exit 0 done, 1 something failed, 2 wrong usage,
130 interrupted.
"""

import gc
import os

# Before numpy is imported. A command works on several recordings at once; threads of the BLAS
# would take the cores from them, and wait for each other longer than its small products take.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# What a command makes is used until it is written, and is no garbage. To look for some after every
# 700 new objects, as Python does, takes a twentieth of the time of starting and of labelling.
gc.set_threshold(50_000, 20, 20)
