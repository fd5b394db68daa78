"""What the modules of compiled loops share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from glob import escape
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with Numba on first use, and keep the result beside the module, or where NUMBA_CACHE_DIR says."""
    return _kept(function, numba.njit(nogil=True))


def compiled_unchecked(function: F) -> F:
    """The same, without checks for a division by zero, of which there is none.

    No fast mathematics: what it lets a compiler do depends on where it inlines a function, which is another place in
    the process that compiles than in one that loads the result. Sums that are to be fast are in `repro.common.sums`.
    """
    return _kept(function, numba.njit(nogil=True, error_model="numpy"))


def _kept(function: F, compiler: Callable[[F], Any]) -> F:
    dispatcher = compiler(function)
    # What `cache=True` does, with a cache of ours.
    dispatcher._cache = MendingCache(function)
    return cast(F, dispatcher)


class MendingCache(FunctionCache):
    """Numba's cache of a function. If its files cannot be read, they are removed, and the function is compiled again.

    Numba does not wait until they are on the disk: after a loss of power they may be empty, or end too early.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is stored for a signature; None if nothing is that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # A torn pickle fails in as many ways as there are bytes.
            folder, name = Path(self.cache_path), self._impl.filename_base
            print(
                f"warning: compiled {name} in {folder} cannot be read ({type(error).__name__}); compiling it again",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            for file in folder.glob(f"{escape(name)}.*nb[ic]"):
                file.unlink(missing_ok=True)
            return None
