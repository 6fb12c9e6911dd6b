"""`python -m driftscore`: the command."""

from driftscore.cli.app import start

if __name__ == "__main__":
    start()
