from __future__ import annotations

import types

import realistic_tta


def test_public_names_are_exactly_the_declared_ones() -> None:
    found = {
        name
        for name, value in vars(realistic_tta).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert found | {"__version__"} == set(realistic_tta.__all__)
    assert len(realistic_tta.__all__) == len(set(realistic_tta.__all__))


def test_every_public_name_says_what_it_is() -> None:
    for name in realistic_tta.__all__:
        value = getattr(realistic_tta, name)
        if callable(value):
            assert value.__doc__, name
