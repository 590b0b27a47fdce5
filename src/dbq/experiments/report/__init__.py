"""One self-contained page about runs."""
