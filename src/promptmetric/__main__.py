"""The `promptmetric` command, and `python -m promptmetric`."""

from __future__ import annotations

import sys


def main() -> None:
    """Import the command line and run it; Ctrl-C during the imports ends as quietly as later."""
    try:
        from promptmetric.cli import cli

        cli()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
