"""Every truncation has a critical setting (how strict it may be before it cuts a given token) or is listed here.

`tests/decode/test_fast_sampling.py` does the same for kernels.
"""

import pytest
import torch

import unspool as us
from unspool.decode.transforms import TRANSFORMS, Truncation
from unspool.diagnose.critical_settings import Places, criteria

WIDTH = 3

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


def rules_with_a_critical_setting():
    """{name of the transform: its criterion and what finds the critical settings}."""
    found = {}
    for criterion, critical in criteria(WIDTH).items():
        (rule,) = us.parse(criterion.decoder(1)).transforms
        found[type(rule).__name__] = criterion, critical
    return found


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


@pytest.mark.parametrize("name", sorted(rules_with_a_critical_setting()))
def test_the_critical_settings_reject_what_the_transform_cuts(name):
    criterion, critical = rules_with_a_critical_setting()[name]
    (rule,) = us.parse(criterion.decoder(SOME[name])).transforms
    assert type(rule).__name__ == name
    for logp_V in logp():
        every = torch.arange(len(logp_V))
        critical_V = critical(Places(logp_V.expand(len(logp_V), -1), every))
        assert torch.equal(criterion.rejects(SOME[name], critical_V), ~rule.keeps(logp_V[None])[0])
