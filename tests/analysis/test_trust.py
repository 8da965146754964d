"""Every row of the table that decides on trust, and every threshold at, below and above its value."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosimo.analysis.trust import CARE, MARKS, TARGET, WORDS, Grounds, judge
from cosimo.analysis.truth import OutputErrors


def errors(worst: float, horizon: float = 2.0, **more: object) -> OutputErrors:
    return OutputErrors({"a.y": worst, "b.y": worst / 2}, horizon, **more)  # type: ignore[arg-type]


GOOD = Grounds(True, errors(0.004), "proved", horizon=2.0)


@pytest.mark.parametrize(
    ("changed", "trust", "because"),
    [
        ({}, "yes", "every output within 0.4 % until 2 s"),
        ({"evidence": "confirmed"}, "yes", "every output within 0.4 % until 2 s"),
        ({"evidence": "measured"}, "yes", "every output within 0.4 % until 2 s"),
        ({"horizon": None}, "yes", "every output within 0.4 % until 2 s"),
        ({"converges": True}, "yes", "every output within 0.4 % until 2 s"),
        (
            {"errors": errors(0.004, any_start=True)},
            "yes",
            "every output within 0.4 % until 2 s from any initial state",
        ),
        # Nothing is known.
        ({"evidence": "none"}, "not assessed", "nothing is known of this coupling"),
        ({"evidence": "none", "reason": "no pilot runs"}, "not assessed", "no pilot runs"),
        ({"evidence": "none", "stable": False}, "not assessed", "nothing is known of this coupling"),
        # It does not stay bounded.
        ({"stable": False}, "no", "unstable"),
        ({"stable": False, "errors": None}, "no", "unstable"),
        ({"converges": False}, "no", "the iteration diverges"),
        ({"converges": False, "stable": False}, "no", "the iteration diverges"),
        # No error is known.
        ({"errors": None}, "with care", "stable, but its error is not known"),
        ({"errors": None, "reason": "it rests"}, "with care", "stable, but it rests"),
        ({"errors": None, "stable": None}, "with care", "it stays bounded, but its error is not known"),
        (
            {"errors": None, "stable": False, "system_grows": True},
            "with care",
            "the system itself grows, but its error is not known",
        ),
        # The error is too large, by little and by much.
        ({"errors": errors(0.02)}, "with care", "a.y is off by 2 %, more than the target of 1 %"),
        ({"errors": errors(0.55)}, "no", "a.y is off by 55 %"),
        ({"errors": errors(math.inf)}, "no", "a.y diverges"),
        ({"errors": errors(math.nan)}, "no", "a.y is off by –"),
        # The system itself grows: its own growth is not held against the master, but a wrong one is.
        (
            {"stable": False, "system_grows": True},
            "with care",
            "the system itself grows; every output within 0.4 % until 2 s",
        ),
        ({"stable": False, "system_grows": True, "errors": errors(0.55)}, "no", "a.y is off by 55 %"),
        # Less is known than was asked for.
        (
            {"horizon": 3.0},
            "with care",
            "every output within 0.4 % until 2 s; pilot runs did not reach 3 s",
        ),
        (
            {"horizon": 3.0, "errors": errors(0.02)},
            "no",
            "a.y is off by 2 % until 2 s, more than the target of 1 %; pilot runs did not reach 3 s",
        ),
        ({"horizon": 3.0, "errors": errors(0.55)}, "no", "a.y is off by 55 % until 2 s; pilot runs did not reach 3 s"),
        ({"horizon": 3.0, "errors": errors(math.inf)}, "no", "a.y diverges"),
        # A prediction beyond what pilot runs reached.
        (
            {"horizon": 2.0, "seen": 0.5},
            "with care",
            "every output within 0.4 % until 2 s; pilot runs confirm that until 0.5 s only",
        ),
        (
            {"horizon": 2.0, "seen": 0.5, "errors": errors(0.02)},
            "with care",
            "a.y is off by 2 %, more than the target of 1 %; pilot runs confirm that until 0.5 s only",
        ),
        ({"horizon": 2.0, "seen": 0.5, "errors": errors(0.55)}, "no", "a.y is off by 55 %"),
        ({"horizon": 2.0, "seen": 2.0}, "yes", "every output within 0.4 % until 2 s"),
        (
            {"stable": None},
            "with care",
            "every output within 0.4 % until 2 s, but whether it stays bounded is not known",
        ),
        # What was measured until the end of the run holds until there, whatever comes later.
        ({"stable": None, "evidence": "measured"}, "yes", "every output within 0.4 % until 2 s"),
        # One adaptive run was accurate, but the controller may choose steps that grow.
        (
            {"stable": None, "evidence": "measured", "steps_grow": True},
            "with care",
            "every output within 0.4 % until 2 s in the run made, but other steps that may be chosen grow",
        ),
        ({"steps_grow": True, "errors": errors(0.55)}, "no", "a.y is off by 55 %"),
    ],
)
def test_the_table(changed: dict[str, object], trust: str, because: str) -> None:
    found = judge(replace(GOOD, **changed))  # type: ignore[arg-type]
    assert (found.trust, found.because) == (trust, because)
    assert found.headline == f"{WORDS[found.trust]}: {because}"
    assert found.mark == MARKS[found.trust]


def test_words_and_lights() -> None:
    assert WORDS == {
        "yes": "Trust",
        "with care": "Trust with care",
        "no": "Do not trust",
        "not assessed": "Not assessed",
    }
    assert MARKS == {"yes": "good", "with care": "care", "no": "bad", "not assessed": "open"}


@pytest.mark.parametrize("target", [TARGET, 1e-3, 0.3])
def test_the_target_and_five_times_it(target: float) -> None:
    def trust(worst: float) -> str:
        return judge(Grounds(True, errors(worst), "proved", target)).trust

    assert trust(target) == "yes"
    assert trust(math.nextafter(target, 1)) == "with care"
    assert trust(5 * target) == "with care"
    assert trust(math.nextafter(5 * target, 10)) == "no"


def test_the_usual_target_is_one_per_cent() -> None:
    assert (TARGET, CARE) == (0.01, 5.0)
    assert Grounds(True, None, "proved").target == 0.01


def test_a_horizon_short_by_rounding_is_reached() -> None:
    def trust(reached: float) -> str:
        return judge(replace(GOOD, errors=errors(0.004, reached), horizon=2.0)).trust

    assert trust(2.0 * (1 - 0.9e-9)) == "yes"
    assert trust(2.0 * (1 - 1.5e-9)) == "with care"
    assert trust(2.5) == "yes"


ORDER = {"yes": 3, "with care": 2, "no": 1}


@given(
    st.sampled_from([True, False, None]),
    st.floats(0, 10),
    st.floats(0, 10),
    st.sampled_from([True, False]),
    st.sampled_from([True, None, False]),
)
def test_a_larger_error_is_never_trusted_more(
    stable: bool | None, one: float, two: float, system_grows: bool, converges: bool | None
) -> None:
    small, large = sorted((one, two))
    found = [judge(Grounds(stable, errors(e), "measured", 0.01, converges, system_grows)).trust for e in (small, large)]
    assert ORDER[found[0]] >= ORDER[found[1]]
    if found[0] == "yes":
        assert stable is not False
        assert converges is not False
        assert small <= 0.01
