from argparse import Namespace

import pytest

from unspool.cli.lab.choice import chosen, known, say, seeds_of


def test_claims_are_chosen_in_their_own_order(coins):
    assert [it.name for it in chosen(["die", "coin"], False, coins)] == ["coin", "die"]
    assert chosen([], True, coins) == list(coins)


@pytest.mark.parametrize(("names", "everything"), [([], False), (["coin"], True)])
def test_names_or_all_but_not_both(names, everything, coins):
    with pytest.raises(ValueError, match="name the claims to run, or give --all"):
        chosen(names, everything, coins)


def test_an_unknown_name_is_refused_with_what_was_perhaps_meant(coins):
    with pytest.raises(ValueError, match="there is no claim 'coyn': did you mean coin"):
        chosen(["coyn"], False, coins)
    with pytest.raises(ValueError, match="there is no claim 'zzz': `unspool lab list` names them all"):
        chosen(["zzz"], False, coins)


def test_a_quick_run_has_one_seed_unless_others_are_said():
    assert seeds_of(Namespace(seeds=[1, 2, 3], quick=False)) == [1, 2, 3]
    assert seeds_of(Namespace(seeds=[1, 2, 3], quick=True)) == [1]
    assert seeds_of(Namespace(seeds=[4, 5, 4], quick=True)) == [4, 5]


def test_nothing_is_known_at_first(coins, capsys):
    (coin, _) = known(Namespace(seeds=[1], quick=False, folder=None), coins, say)
    assert coin.verdict == "not run"
    say("so it is")
    assert capsys.readouterr().err == "unspool: so it is\n"
