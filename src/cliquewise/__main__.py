"""``python -m cliquewise``: the same as the command ``cliquewise``."""

from cliquewise.cli import main

if __name__ == "__main__":
    main(prog_name="cliquewise")
