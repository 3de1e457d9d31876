"""Every script of examples/python runs; their own assertions say whether it did well."""
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

import foci

PACKAGES = pathlib.Path(foci.__file__).parents[1]  # installed, or of the build
SCRIPTS = sorted((ROOT / "examples/python").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script, tmp_path):
    if script.stem.startswith(("torch", "transformers")):
        pytest.importorskip(script.stem.split("_")[0])
    done = subprocess.run([sys.executable, script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=str(PACKAGES)))
    assert done.returncode == 0, done.stdout
