"""One validator for the options of every method, wrapper and optimizer."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realistic_tta import METHODS, SGD, Adam, GuardSettings, OptionError
from realistic_tta.api import WRAPPERS, WrapperOptions
from realistic_tta.core.settings import Settings, from_json, to_json

CLASSES: list[type[Settings]] = [
    *(method.settings_type for method in METHODS.values()),
    *(wrapper.settings_type for wrapper in WRAPPERS.values()),
    WrapperOptions,
    Adam,
    SGD,
]
REQUIRED: dict[str, Any] = {"Adam": {"lr": 1e-3}, "SGD": {"lr": 1e-3}}
OPTIONS = [
    (each, field.name) for each in dict.fromkeys(CLASSES) for field in dataclasses.fields(each)
]

# What no option takes, but for the few whose annotation says so.
WRONG: dict[str, Any] = {
    "a word": "no",
    "NaN": math.nan,
    "infinity": math.inf,
    "a negative number": -1,
    "a list": [1],
    "bytes": b"x",
    "a class": int,
}


def takes(settings: type[Settings], name: str, value: object) -> bool:
    """Whether the annotation, as Python prints it, names the type of the value."""
    hint = str(get_type_hints(settings)[name])
    return isinstance(value, str) and ("str" in hint.replace("Literal", ""))


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize(("settings", "name"), OPTIONS, ids=str)
def test_a_wrong_value_is_refused_with_option_value_and_expectation(
    settings: type[Settings], name: str, case: str
) -> None:
    value = WRONG[case]
    if takes(settings, name, value):
        return
    given = {**REQUIRED.get(settings.__name__, {}), name: value}
    words = rf"^{name} is {re.escape(repr(value))}; expected \S"
    with pytest.raises(OptionError, match=words):
        settings(**given)


@pytest.mark.parametrize(("settings", "name"), OPTIONS, ids=str)
def test_a_bool_is_no_number_and_a_number_no_bool(settings: type[Settings], name: str) -> None:
    hint = str(get_type_hints(settings)[name])
    wrong = 1 if "bool" in hint else True
    given = {**REQUIRED.get(settings.__name__, {}), name: wrong}
    with pytest.raises(OptionError, match=rf"^{name} is {wrong!r}; expected"):
        settings(**given)


@pytest.mark.parametrize(
    ("settings", "given", "words"),
    [
        (METHODS["tema"], {"momentum": 2}, 'expected a number from 1e-06 to 1 or "auto"'),
        (METHODS["tema"], {"momentum": 0}, 'expected a number from 1e-06 to 1 or "auto"'),
        (METHODS["tema"], {"classes": 0}, "expected a whole number of 1 or more or None"),
        (METHODS["tema"], {"source_batch_size": 12.0}, "expected a whole number of 1 or more"),
        (METHODS["tema"], {"start": "Source"}, 'expected "standard" or "source"'),
        (METHODS["rectified_tema"], {"passes": 3}, "expected 1 or 2"),
        (METHODS["rectified_tema"], {"passes": 1.0}, "expected 1 or 2"),
        (METHODS["realistic"], {"max_target_weight": 1.01}, "expected a number from 0 to 1"),
        (METHODS["tent"], {"optimizer": "adam"}, "expected Adam(...) or SGD(...)"),
        (METHODS["tent"], {"episodic": "yes"}, "expected True or False"),
        (METHODS["cotta"], {"seed": -1}, "expected a whole number from 0 to"),
        (METHODS["sar"], {"exclude": "layer4"}, "expected a tuple, each entry a string"),
        (METHODS["sar"], {"exclude": ("layer4", 1)}, "expected a tuple, each entry a string"),
        (METHODS["lame"], {"features": 3}, "expected a string or None"),
    ],
)
def test_bounds_and_choices_are_named(settings: Any, given: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        settings.settings_type(**given)


@pytest.mark.parametrize("betas", [(0.9,), (0.9, 1.0), [0.9, 0.99], (0.9, "x"), 0.9])
def test_betas_are_two_numbers_below_one(betas: Any) -> None:
    with pytest.raises(OptionError, match=r"betas is .*; expected a tuple of 2, each a number"):
        Adam(lr=0.1, betas=betas)


@pytest.mark.parametrize("settings", dict.fromkeys(CLASSES), ids=lambda each: each.__name__)
def test_defaults_are_valid_frozen_and_documented(settings: type[Settings]) -> None:
    made = settings(**REQUIRED.get(settings.__name__, {}))
    assert made == settings(**REQUIRED.get(settings.__name__, {}))
    assert settings.__doc__
    for name in settings.names():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, None)


@pytest.mark.parametrize("method", METHODS)
def test_settings_return_from_json_as_they_were(method: str) -> None:
    settings_type = METHODS[method].settings_type
    presets = getattr(settings_type, "presets", None) or {"none": {}}
    for options in presets.values():
        made = settings_type(**options)
        assert from_json(settings_type, to_json(made)) == made


def test_json_with_other_settings_is_refused() -> None:
    settings_type = METHODS["sar"].settings_type
    good = json.loads(to_json(settings_type()))
    for change in ({"radius": -1}, {"type": "Popen"}, {"optimizer": {"type": "Tent"}}, {"x": 1}):
        with pytest.raises(OptionError):
            from_json(settings_type, json.dumps(good | change))


@given(st.floats(), st.integers(), st.booleans())
def test_a_number_in_bounds_is_taken_and_any_other_refused(
    number: float, whole: int, flag: bool
) -> None:
    for value in (number, whole, flag):
        fits = type(value) is not bool and 0 <= value <= 1
        try:
            GuardSettings(alarm=value)
        except OptionError:
            assert not fits
        else:
            assert fits
