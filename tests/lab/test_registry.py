import json
from dataclasses import replace

import pytest

from unspool.lab import registry
from unspool.lab.claim import Claim
from unspool.lab.claims import CLAIMS
from unspool.lab.registry import latest, register, registered, version_hash


def test_every_claim_is_registered_as_it_is():
    for it in CLAIMS:
        assert latest(it) is not None, f"{it.name}: run python -m unspool.lab.registry --why …"
    assert set(registered()) == {it.name for it in CLAIMS}


def test_every_hash_follows_from_its_version_and_the_one_before():
    for versions in registered().values():
        previous = ""
        for number, version in enumerate(versions, start=1):
            assert version["version"] == number
            assert version["hash"] == version_hash(version, previous)
            assert version["why"]
            previous = version["hash"]


def test_a_changed_version_has_another_hash():
    version = registered()["degeneration"][-1]
    assert version_hash({**version, "plan": {**version["plan"], "matters": 0.2}}, "") != version_hash(
        version, ""
    )


@pytest.mark.parametrize("claim", [it for it in CLAIMS if isinstance(it, Claim)], ids=lambda it: it.name)
def test_every_claim_has_enough_seeds_and_power(claim):
    assert claim.seeds >= 10
    assert claim.power >= 0.8
    assert claim.matters > 0
    assert claim.contradicted_below <= claim.matters


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A register of its own."""
    path = tmp_path / "registrations.json"
    path.write_text("{}")
    monkeypatch.setattr(registry, "REGISTER", path)
    registered.cache_clear()
    yield path
    registered.cache_clear()


def test_a_change_makes_a_new_version_and_keeps_the_old_one(coin, empty):
    assert latest(coin) is None
    assert register([coin], "First version.", "2026-01-01") == ["coin"]
    assert register([coin], "Nothing.", "2026-01-02") == []
    changed = replace(coin, matters=0.2)
    assert latest(changed) is None
    assert register([changed], "0.1 is too little.", "2026-01-03") == ["coin"]
    one, two = json.loads(empty.read_text())["coin"]
    assert (one["plan"]["matters"], two["plan"]["matters"]) == (0.1, 0.2)
    assert (one["version"], two["version"], two["why"]) == (1, 2, "0.1 is too little.")
    assert two["hash"] == version_hash(two, one["hash"])
