"""What a result was made with: code, versions, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

_PACKAGES = (
    "repro", "torch", "pytorch-lightning", "hydra-core", "mlflow", "pandas", "numpy", "numba", "scipy", "matplotlib",
)  # fmt: skip

REPOSITORY = Path(__file__).resolve().parents[2]


def git(*arguments: str) -> str | None:
    """What git answers about this repository; None where it does not, or there is none."""
    try:
        process = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout


def head() -> str | None:
    """The commit that is checked out; None outside of a repository."""
    commit = git("rev-parse", "HEAD")
    return commit.strip() if commit else None


@cache
def code() -> dict[str, str]:
    """Git commit, and whether files that git tracks differ from it; "unknown" outside a git checkout."""
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {
        "git_commit": head() or "unknown",
        "git_dirty": "unknown" if changed is None else str(bool(changed.strip())).lower(),
    }


def commit() -> str:
    """The commit in one word, with "-dirty" where files differ from it, as `git describe` says it."""
    facts = code()
    return facts["git_commit"] + ("-dirty" if facts["git_dirty"] == "true" else "")


@cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    by_package = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:
            by_package[package] = "not installed"
    return by_package


@cache
def hardware() -> dict[str, str]:
    """Processor, which of its instructions torch uses, cores available to this process, and GPU."""
    return {
        "cpu": _processor(),
        # Processors of one name can differ in these, and then round differently.
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "platform": platform.platform(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
