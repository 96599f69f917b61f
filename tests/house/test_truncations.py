"""A truncation stands in three places: its transform, the shortlist and the critical settings. None is forgotten.

The transform is the definition. The shortlist draws by it without looking at every token, and the critical
settings say how strict it may be before it cuts a given token. Whoever adds a truncation adds it to the other
two, or says here that it is left out.
"""

import pytest
import torch

import unspool as us
from unspool.decode.shortlist.chain import RULES, shorten
from unspool.decode.transforms import TRANSFORMS, Temperature, Truncation
from unspool.diagnose.critical_settings import Places, criteria

WIDTH = 3

# Rarer ones, drawn from in the plain way: the same tokens, in more time.
NOT_SHORTLISTED = {"Kappa", "MinK", "PLess", "TailFree", "TopH"}
# Not among the samplers that `unspool.diagnose.thresholds` matches: PLess has no setting, MinK's acts on rows
# that are almost flat only, and the literature that matches settings by what they reject leaves out the others,
# whose critical setting takes a sorted row.
WITHOUT_A_CRITICAL_SETTING = {"MinK", "PLess", "TailFree", "TopH"}


def truncations():
    return {name: kind for name, kind in TRANSFORMS.items() if issubclass(kind, Truncation)}


def unlike(known, listed, left_out):
    """What is neither listed nor left out, is both, or is no truncation."""
    known, listed, left_out = set(known), set(listed), set(left_out)
    return sorted((known ^ (listed | left_out)) | (listed & left_out))


def shortlisted():
    return {kind.__name__ for kind in RULES if kind is not Temperature}


def rules_with_a_critical_setting():
    """{name of the transform: its criterion and what finds the critical settings}."""
    found = {}
    for criterion, critical in criteria(WIDTH).items():
        (rule,) = us.parse(criterion.decoder(1)).transforms
        found[type(rule).__name__] = criterion, critical
    return found


def test_every_truncation_is_in_the_shortlist_or_left_out_on_purpose():
    assert unlike(truncations(), shortlisted(), NOT_SHORTLISTED) == []


def test_every_truncation_has_critical_settings_or_is_left_out_on_purpose():
    assert unlike(truncations(), rules_with_a_critical_setting(), WITHOUT_A_CRITICAL_SETTING) == []


def test_one_that_was_forgotten_is_noticed():
    assert unlike({"TopK", "New"}, {"TopK"}, set()) == ["New"]
    assert unlike({"TopK"}, {"TopK", "Gone"}, set()) == ["Gone"]
    assert unlike({"TopK"}, {"TopK"}, {"TopK"}) == ["TopK"]


def logp(seed=0, rows=4, vocabulary=50):
    dice = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(rows, vocabulary, generator=dice)).log_softmax(dim=-1)


# A setting that cuts some tokens and not all.
SOME = {
    "Epsilon": 0.01,
    "Eta": 0.02,
    "Kappa": 0.1,
    "MinP": 0.1,
    "TopA": 0.2,
    "TopK": 7,
    "TopNSigma": 1.2,
    "TopP": 0.8,
    "Typical": 0.7,
}


@pytest.mark.parametrize("name", sorted(shortlisted()))
def test_the_shortlist_keeps_what_the_transform_keeps(name):
    rule, logp_NV = TRANSFORMS[name](SOME[name]), logp()
    kept_NV = rule.keeps(logp_NV)
    assert 0 < int(kept_NV.sum()) < kept_NV.numel()
    assert torch.equal(shorten(logp_NV, [rule]).whole() > -torch.inf, kept_NV)


@pytest.mark.parametrize("name", sorted(rules_with_a_critical_setting()))
def test_the_critical_settings_reject_what_the_transform_cuts(name):
    criterion, critical = rules_with_a_critical_setting()[name]
    (rule,) = us.parse(criterion.decoder(SOME[name])).transforms
    assert type(rule).__name__ == name
    for logp_V in logp():
        every = torch.arange(len(logp_V))
        critical_V = critical(Places(logp_V.expand(len(logp_V), -1), every))
        assert torch.equal(criterion.rejects(SOME[name], critical_V), ~rule.keeps(logp_V[None])[0])
