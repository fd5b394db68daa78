"""Importing what takes seconds, and what a configuration names."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from repro.common.errors import ModuleError


@contextmanager
def quicker_imports() -> Iterator[None]:
    """Import without looking for garbage meanwhile; if anything is imported, nor, later, in what there is by then.

    Modules leave next to none and stay: looking takes a tenth of the time of importing, and a quarter of a second
    whenever all is looked through. Children that are forked would get copies of what they look through. For the same
    reason it is no place for large things to be held: what is in a ring by then is never let go of.
    """
    was_enabled, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if was_enabled:
            gc.enable()


def import_named(key: str, module: str) -> None:
    """Import a module that a configuration names.

    Args:
        key: that names it.

    Raises:
        ModuleError: it cannot be imported.
    """
    try:
        import_module(module)
    except Exception as error:  # A file of somebody's own may raise anything.
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ModuleError(f"{key} is {module!r}; it must be a file that can be imported ({why}).") from error
