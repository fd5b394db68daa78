"""Imports during which, and after which, Python does not look for garbage."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import pytest

from repro.common.importing import quicker_imports


def test_only_after_an_import_what_there_is_is_not_looked_through_any_more(tmp_path, monkeypatch):
    (tmp_path / "imported_here.py").write_text("SOME = [[] for _ in range(100)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_here", raising=False)
    for is_imported_before in (False, True):
        before = gc.get_freeze_count()
        with quicker_imports():
            assert not gc.isenabled()
            imported = import_module("imported_here")
        assert gc.isenabled()
        assert (gc.get_freeze_count() == before) == is_imported_before
    assert not any(each is imported.SOME for each in gc.get_objects())


def test_garbage_is_looked_for_again_after_an_import_that_fails():
    with pytest.raises(ModuleNotFoundError), quicker_imports():
        import_module("repro.no_such_module")
    assert gc.isenabled()
