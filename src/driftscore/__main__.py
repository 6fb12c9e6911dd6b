"""`python -m driftscore`: the command."""

from driftscore.cli.app import main

if __name__ == "__main__":
    main()
