"""Forms of the tests of suites, and names that they share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.thorough import also

CONSTRAINTS = ("letters", "number", "json_string", "email", "until_tag")

#: runs a test with stand-ins for models, servers, engines or vocabularies, which have the same figures; and
#: as it is, with `test.sh --thorough`
forms = pytest.mark.parametrize("form", ["stand-ins", *also(pytest.param("real", marks=pytest.mark.slow))])


#: runs a suite in its short form; see the fixture `figures`
Figures = Callable[..., dict[str, float]]
