"""The command that comes with the package."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Optional

from ._c import FOLDER
from ._errors import ArgumentError, Error

COMMAND = FOLDER / "bin" / "foci"


def command(*arguments: str, cwd: Optional[str] = None) -> str:
    """What ``foci ARGUMENTS...`` prints; `foci.Error` with its sentence where it fails."""
    done = subprocess.run([str(COMMAND), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise (ArgumentError if done.returncode == 2 else Error)(said.removeprefix("foci: ") or str(arguments))
    return done.stdout.decode("utf-8", "replace")


def main() -> None:
    """``foci`` on the command line is the packaged command."""
    os.execv(COMMAND, ["foci", *sys.argv[1:]])
