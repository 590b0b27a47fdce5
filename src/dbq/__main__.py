"""`python -m dbq` is the `dbq` command."""

from dbq.cli.main import main

if __name__ == "__main__":
    main()
