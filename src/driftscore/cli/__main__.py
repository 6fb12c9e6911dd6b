"""`python -m driftscore.cli`: the command."""

from driftscore.cli.app import main

if __name__ == "__main__":
    main()
