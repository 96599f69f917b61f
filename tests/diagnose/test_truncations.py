"""Every truncation has a critical setting (how strict it may be before it cuts a given token) or is listed here.

`tests/decode/test_fast_sampling.py` does the same for kernels.
"""

import pytest
import torch

import unspool as us
from unspool.decode.transforms import TRANSFORMS, Truncation
from unspool.diagnose.matched_thresholds import criteria, critical_settings

WIDTH = 3

# Not matched by `unspool.diagnose.thresholds`: PLess has no setting, that of MinK acts on almost flat rows only,
# and the critical settings of the others need a sorted row.
WITHOUT_A_CRITICAL_SETTING = {"MinK", "PLess", "TailFree", "TopH"}


def truncations():
    return {name: kind for name, kind in TRANSFORMS.items() if issubclass(kind, Truncation)}


def mismatches(known, listed, left_out):
    """Names that are neither listed nor left out, are both, or are not truncations."""
    known, listed, left_out = set(known), set(listed), set(left_out)
    return sorted((known ^ (listed | left_out)) | (listed & left_out))


def rules_with_a_critical_setting():
    """{name of the transform: its criterion}."""
    found = {}
    for criterion in criteria(WIDTH).values():
        (rule,) = us.parse(criterion.decoder(1)).transforms
        found[type(rule).__name__] = criterion
    return found


def test_every_truncation_has_critical_settings_or_is_left_out_on_purpose():
    assert mismatches(truncations(), rules_with_a_critical_setting(), WITHOUT_A_CRITICAL_SETTING) == []


def test_a_missing_truncation_is_found():
    assert mismatches({"TopK", "New"}, {"TopK"}, set()) == ["New"]
    assert mismatches({"TopK"}, {"TopK", "Gone"}, set()) == ["Gone"]
    assert mismatches({"TopK"}, {"TopK"}, {"TopK"}) == ["TopK"]


def logp(seed=0, rows=4, vocabulary=50):
    rng = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(rows, vocabulary, generator=rng)).log_softmax(dim=-1)


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
    criterion = rules_with_a_critical_setting()[name]
    (rule,) = us.parse(criterion.decoder(SOME[name])).transforms
    assert type(rule).__name__ == name
    for logp_V in logp():
        every = torch.arange(len(logp_V))
        critical_V = critical_settings(logp_V.expand(len(logp_V), -1), every, WIDTH)[criterion.name]
        assert torch.equal(criterion.rejects(SOME[name], critical_V), ~rule.keeps(logp_V[None])[0])
