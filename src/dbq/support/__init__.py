"""What every room uses: atomic files, locks, text, TOML, facts about the machine."""
