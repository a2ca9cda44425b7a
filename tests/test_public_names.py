from __future__ import annotations

import inspect
import re
import types

import pytest

import realistic_tta
from realistic_tta.core.settings import Settings

SHARED = {"optimizer", "steps", "episodic", "seed"}  # of every method that trains


def test_public_names_are_exactly_the_declared_ones() -> None:
    found = {
        name
        for name, value in vars(realistic_tta).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert found | {"__version__"} == set(realistic_tta.__all__)
    assert len(realistic_tta.__all__) == len(set(realistic_tta.__all__))


PUBLIC = [name for name in sorted(realistic_tta.__all__) if callable(getattr(realistic_tta, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented_with_an_example(name: str) -> None:
    """The examples themselves are run as doctests."""
    value = getattr(realistic_tta, name)
    text = inspect.getdoc(value) or ""
    assert re.match(r"[A-Z][^\n]+", text), "begins with a sentence"
    assert ">>> " in text
    if inspect.isfunction(value):
        assert all(f"\n{section}:\n" in text for section in ("Args", "Returns", "Raises"))
        for argument in inspect.signature(value).parameters:
            assert re.search(rf"^    {argument}: ", text, flags=re.MULTILINE), argument
    elif issubclass(value, Settings):
        for argument in set(value.names()) - SHARED:
            assert argument in text, argument
