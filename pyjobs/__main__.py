"""``python -m pyjobs`` is the command ``pyjobs``."""

from pyjobs.cli.main import main

if __name__ == "__main__":
    main()
