"""What the modules of compiled loops share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with Numba on first use, and keep the result beside the module."""
    return cast(F, numba.njit(nogil=True, cache=True)(function))
