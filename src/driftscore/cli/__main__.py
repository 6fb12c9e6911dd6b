"""`python -m driftscore.cli`: the command."""

from driftscore.cli.app import start

if __name__ == "__main__":
    start()
