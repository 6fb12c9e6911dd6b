"""Run a command and write its seconds, processor time, peak memory and exit status to a file.

usage: python -I -S watch.py RESULT.json COMMAND ...

On Linux the peak memory of a process includes that of its parent at the time of the fork. So the
parent of a measured command is this small process instead of the benchmark itself.
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
    exit_status = os.waitstatus_to_exitcode(status)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        cost = {"seconds": seconds, "cpu_s": usage.ru_utime + usage.ru_stime}
        json.dump({**cost, "peak_mb": peak / 1e6, "status": exit_status}, out)
    process.returncode = exit_status
