"""Every technique is two links from the README: its entry, then the function that computes its equation."""

import pytest


@pytest.fixture(scope="module")
def stranger(script):
    return script("docs/stranger.py")


def test_every_technique_is_two_hops_away(stranger, script):
    every = [it for room in script("docs/generate.py").techniques().values() for it in room]
    trails = {trail.anchor: trail.places for trail in stranger.trails()}
    assert set(trails) == {it.title.replace(" ", "-") for it in every}
    for it in every:
        places = [place.partition(":")[0] for place in trails[it.title.replace(" ", "-")]]
        assert len(places) == len(it.computed)
        assert all(place.endswith(path.name) for place, (_, path) in zip(places, it.computed, strict=True))


def test_hops_are_followed(stranger, tree):
    root = tree(
        {
            "README.md": "[`One`](docs/techniques.md#number-one) [again](docs/techniques.md#number-one)",
            "docs/techniques.md": "# T\n## Room\n### number one\n\nSays `x`.\n\n"
            "[src/a.py](../src/a.py): `One.go`, `two` in [b.py](../src/b.py)\n\n### another\n",
            "src/a.py": "class One:\n    x = 1\n\n    def go(self): ...\n",
            "src/b.py": "def two(): ...\n",
        }
    )
    (trail,) = stranger.trails(root)
    assert str(trail) == "README.md → docs/techniques.md#number-one → src/a.py:4 One.go, src/b.py:1 two"


@pytest.mark.parametrize(
    ("readme", "entry"),
    [
        ("[x](docs/techniques.md#nowhere)", "### one\n\n[src/a.py](../src/a.py): `go`\n"),
        ("[x](docs/techniques.md#one)", "### one\n\n[src/a.py](../src/a.py): `gone`\n"),
    ],
)
def test_a_hop_that_leads_nowhere_is_noticed(stranger, tree, readme, entry):
    root = tree({"README.md": readme, "docs/techniques.md": entry, "src/a.py": "def go(): ...\n"})
    with pytest.raises((KeyError, ValueError)):
        stranger.trails(root)
