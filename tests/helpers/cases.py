"""Cases of parametrised tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def usually_first(cases: Sequence[Any]) -> list[Any]:
    """Cases of which `make test` does the first one, and `make test-all` all; each is of one argument, or a tuple."""
    first, *others = cases
    each = (case if isinstance(case, tuple) else (case,) for case in others)
    return [first, *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in each)]
