"""`python -m fabemu`, for those who have no script on their path."""

import os
import subprocess
import sys
from pathlib import Path

import fabemu
from tests.small import SMALL


def test_the_package_runs_as_a_module(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    found = os.environ | {"PYTHONPATH": str(Path(fabemu.__file__).resolve().parents[1])}
    command = [sys.executable, "-m", "fabemu", "check", "small.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=found)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("small.toml: fine")
