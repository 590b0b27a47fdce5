"""The `dbq` command, also as `python -m dbq`."""

from __future__ import annotations

import sys

from dbq.support.extras import advice


def main() -> None:
    """Run the command line; where a package is missing, say in a line which extra brings it."""
    try:
        from dbq.cli.main import main as command_line

        command_line()
    except ModuleNotFoundError as error:
        what = " ".join(["dbq", *sys.argv[1:2]])
        if not (message := advice(error, what)):
            raise
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
