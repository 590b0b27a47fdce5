"""The native test programs, which `make native` builds; tests only run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build"


class Programs:
    """The programs of one preset of CMakePresets.json."""

    def __init__(self, preset: str) -> None:
        self.directory = BUILD / preset

    def path(self, name: str) -> Path:
        """The program called `name`; without it the test is skipped."""
        program = self.directory / name
        if not program.exists():
            pytest.skip(f"{program} is not built: run `make native`")
        return program

    def run(self, name: str, *arguments: str | Path, **environment: str) -> str:
        """What the program prints. It must succeed."""
        result = subprocess.run(
            [self.path(name), *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        return result.stdout
