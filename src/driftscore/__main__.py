"""The start of the command: the console script, and `python -m driftscore`.

All else is imported inside `start`, so that Ctrl-C during these imports is one line as well.
"""

import os
import signal
import sys


def start() -> None:
    """Run the command as a process of its own."""
    try:
        # Before numpy is imported. A command works on several recordings at once; threads of the
        # BLAS would take the cores from them, and wait for each other longer than products take.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from driftscore.cli.app import main

        main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("stopped", file=sys.stderr)
        sys.exit(130)
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback from Python's own end


if __name__ == "__main__":
    start()
