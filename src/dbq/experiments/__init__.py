"""Whole jobs made of the other rooms: export, comparison, sweep, report, the paper."""
