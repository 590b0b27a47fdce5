"""Boards that QEMU emulates: what starts a test on them, and what builds, runs and counts it."""
