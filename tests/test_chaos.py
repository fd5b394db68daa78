"""The short form of `make chaos`: a few kills and other disturbances of three kinds of run."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.exhaustive
def test_disturbed_runs_leave_what_undisturbed_ones_do():
    kinds = [word for kind in ("Deep CFR", "solved subgames", "DEVN") for word in ("--only", kind)]
    command = [sys.executable, "-m", "tests.chaos", "--once", "--kills", "5", "--minutes", "3", *kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
