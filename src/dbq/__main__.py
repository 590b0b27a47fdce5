"""`python -m dbq` is the `dbq` command."""

from dbq.cli import main

if __name__ == "__main__":
    main()
