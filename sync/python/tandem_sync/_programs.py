"""The programs that came with the package, as commands: tandem-train, tandem-sync, tandem-engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def _become(name: str) -> NoReturn:
    program = Path(__file__).parent / "bin" / name
    os.execv(program, [str(program), *sys.argv[1:]])


def train() -> NoReturn:
    _become("tandem-train")


def sync() -> NoReturn:
    _become("tandem-sync")


def engine() -> NoReturn:
    _become("tandem-engine")
