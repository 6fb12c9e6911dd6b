"""Run a command and write its seconds, its peak memory and its exit status to a file.

usage: python -I -S watch.py RESULT.json COMMAND ...
The kernel counts into a command's peak what the process was before it became the command: a
copy of its parent. So its parent is this one, which is small, and not a benchmark.
"""

import json
import os
import subprocess
import sys
import time

if __name__ == "__main__":
    start = time.perf_counter()
    process = subprocess.Popen(sys.argv[2:])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = {"seconds": seconds, "peak_mb": peak / 1e6, "status": os.waitstatus_to_exitcode(status)}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(found, out)
    process.returncode = found["status"]
