"""The templates of a worker: no owner evicts those of another one with fewer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from aicirt.contract.errors import TemplateGoneError
from aicirt.settings import WorkerSettings
from aicirt.worker.templates import Template, Templates


def template(owner: str, nbytes: int = 10) -> Template:
    snapshot = cast(Any, SimpleNamespace(nbytes=nbytes))
    return Template(snapshot, b"", 0, cast(Any, None), b"", owner)


@pytest.mark.parametrize("settings", [WorkerSettings(max_templates=3), WorkerSettings(snapshot_bytes=30)])
def test_owner_with_many_templates_evicts_only_their_own(settings: WorkerSettings) -> None:
    templates = Templates(settings)
    modest = templates.add(template("modest"))
    greedy = [templates.add(template("greedy")) for _ in range(6)]
    assert templates.find_template(modest).owner == "modest"
    assert [templates.find(number) is not None for number in greedy] == [False] * 4 + [True] * 2
    assert templates.nbytes == 30 and templates.given_up == 4
    with pytest.raises(TemplateGoneError):
        templates.find_template(greedy[0])


def test_newest_template_stays_even_if_it_is_the_largest() -> None:
    templates = Templates(WorkerSettings(snapshot_bytes=30))
    small = templates.add(template("small"))
    large = templates.add(template("large", 100))
    assert templates.find(small) is None and templates.find_template(large).snapshot.nbytes == 100
