"""What a result was made with: code, versions, hardware."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_info

_PACKAGES = (
    "repro", "torch", "pytorch-lightning", "hydra-core", "mlflow", "pandas", "numpy", "numba", "scipy", "matplotlib",
)  # fmt: skip

_OF_RUNS = ("repro", "conf", "paper_figures/*.py", "pyproject.toml", "constraints.txt")
"""Files that git tracks, and that runs may depend on."""

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
    """Git commit, and whether files that runs depend on differ from it; "unknown" outside a git checkout."""
    # Pages and results change with every figure that is published, and determine no run.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *_OF_RUNS)
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


_FLAGS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile",
    "amx_bf16", "asimd", "sve", "sve2",
)  # fmt: skip
"""Instructions by which libraries choose between kernels, which round differently."""

_SETTINGS = re.compile(
    "MKL_(CBWR|ENABLE_INSTRUCTIONS|DEBUG_CPU_TYPE)|OPENBLAS_CORETYPE|ATEN_CPU_CAPABILITY|DNNL_.*|ONEDNN_.*"
    "|NPY_(DISABLE|ENABLE)_CPU_FEATURES|NUMBA_(CPU_.*|OPT|DISABLE_JIT|ENABLE_AVX|FASTMATH)|TORCH_ALLOW_TF32.*"
    "|NVIDIA_TF32_OVERRIDE|CUBLAS_WORKSPACE_CONFIG"
)
"""Environment variables that change how libraries compute."""


@cache
def hardware() -> dict[str, str]:
    """Processor, which of its instructions torch uses, libraries of linear algebra, cores available to this process,
    and GPU."""
    return {
        "cpu": _processor(),
        "cpu_flags": " ".join(flag for flag in _FLAGS if flag in _flags()) or "unknown",
        "blas": _blas(),
        "compute_settings": " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if _SETTINGS.fullmatch(k))
        or "none",
        # Processors of one name can differ in these, and then round differently.
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "platform": platform.platform(),
    }


def made_with() -> dict[str, str]:
    """All of these facts, of what this process makes."""
    return {**code(), **hardware(), **versions()}


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or "unknown"


def _flags() -> set[str]:
    """What the processor can do, in Linux's names."""
    return {*_cpuinfo("flags").split(), *_cpuinfo("Features").split()}


def _cpuinfo(key: str) -> str:
    """What Linux says of the first processor; empty where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.partition(":")[0].strip() == key), "")


def _blas() -> str:
    """The libraries of linear algebra that torch and NumPy were built with, and the kernels that NumPy's took here."""
    built = re.search(r"Math Kernel Library Version (\S+)", torch.__config__.show())
    info = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    of_torch = f"mkl {built[1]}" if built else info[1] if info else "unknown"
    of_numpy = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    # All that are loaded take the same; which are, depends on what has been imported.
    kernels = {str(found["architecture"]) for found in threadpool_info() if found.get("architecture")}
    return ", ".join([
        f"torch {of_torch}", " ".join(["numpy", of_numpy["name"], of_numpy["version"], *sorted(kernels)])
    ])  # fmt: skip
