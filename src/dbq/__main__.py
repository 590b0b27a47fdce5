"""`python -m dbq` is the `dbq` command."""

from dbq.cli import main

main()
