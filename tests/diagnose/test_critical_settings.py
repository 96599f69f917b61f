from math import e, log, sqrt

import pytest
import torch
from hypothesis import given, settings, strategies as st

import unspool as us
from unspool.diagnose.matched_thresholds import CRITERIA, criteria, critical_settings, eta_of

P = [0.5, 0.2, 0.2, 0.1]
H = -(0.5 * log(0.5) + 0.4 * log(0.2) + 0.1 * log(0.1))


def critical(logp_V, width=None):
    """{name: the critical setting of every token of one distribution}."""
    found = critical_settings(logp_V.expand(len(logp_V), -1), torch.arange(len(logp_V)), width)
    assert list(found) == list(criteria(width))
    return {name: settings.tolist() for name, settings in found.items()}


def test_by_hand():
    found = critical(torch.tensor(P).log(), width=1)
    assert found["top-k"] == [1, 2, 2, 4]
    assert found["top-p"] == pytest.approx([0, 0.5, 0.7, 0.9])
    # |−log p − H| with H = 1.2206: 0.53, 0.39, 0.39, 1.08; the tokens of p = 0.2 are the most typical
    assert found["typical"] == pytest.approx([0.4, 0, 0, 0.9])
    assert found["epsilon"] == pytest.approx([1, 0.2, 0.2, 0.1])
    assert found["min-p"] == pytest.approx([1, 0.4, 0.4, 0.2])
    assert found["top-a"] == pytest.approx([1, 0.8, 0.8, 0.4])
    assert found["eta"] == pytest.approx([1, (0.2 * e**H) ** 2, (0.2 * e**H) ** 2, (0.1 * e**H) ** 2])
    # Σ min(1, κp) = 2: no token saturates, κ = 2, and κp ≤ 1
    assert found["kappa"] == pytest.approx([float("inf"), 0.4, 0.4, 0.2])
    below = [0, log(2.5), log(2.5), log(5)]
    mean = sum(below) / 4
    sigma = sqrt(sum((x - mean) ** 2 for x in below) / 4)
    assert found["top-nσ"] == pytest.approx([x / sigma for x in below])


@given(st.floats(1e-6, 0.9), st.floats(0.0, 8.0))
def test_eta_is_inverted(threshold, entropy):
    eta = float(
        eta_of(torch.tensor(threshold, dtype=torch.float64), torch.tensor(entropy, dtype=torch.float64))
    )
    assert min(eta, sqrt(eta) * e**-entropy) == pytest.approx(threshold)


def made(name, setting):
    (transform,) = us.parse(criteria(3)[name].decoder(setting)).transforms
    return transform


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=5, max_size=9), st.sampled_from([*criteria(3)]))
def test_a_token_survives_exactly_up_to_its_critical_setting(levels, name):
    logp_V = (torch.tensor(levels) * 0.37 + torch.arange(len(levels)) * 0.001).log_softmax(-1)
    criterion = criteria(3)[name]
    most = len(levels) if criterion.is_integer else float("inf") if name in ("kappa", "top-nσ") else 1.0
    for token, setting in enumerate(critical(logp_V, width=3)[name]):
        stricter, looser = (1.01, 0.99) if criterion.is_rising else (0.99, 1.01)
        if criterion.is_integer:
            stricter, looser = (setting - 1) / setting, 1.0
        if 0 < setting * looser <= most and setting < float("inf"):
            assert us.survivors(made(name, setting * looser), logp_V)[token]
        if 0 < setting * stricter <= most and setting < float("inf"):
            assert not us.survivors(made(name, setting * stricter), logp_V)[token]


def test_the_kappa_rule_needs_a_width():
    assert "kappa" not in criteria(None)
    assert len(criteria(5)) == len(CRITERIA) + 1


def test_decoders_can_be_parsed():
    for criterion in criteria(16).values():
        assert us.parse(criterion.decoder(1.0))


def test_a_setting_is_short_but_never_rounded_to_the_loosest():
    top_p = criteria(None)["top-p"]
    assert top_p.decoder(0.123456789) == "Sample(TopP(0.123457))"
    assert top_p.decoder(0.99999999) == "Sample(TopP(0.99999999))"
    assert top_p.decoder(1.0) == "Sample(TopP(1))"


def test_typical_at_a_setting_near_one_rejects_the_share_that_it_was_found_for():
    dice = torch.Generator().manual_seed(0)
    logp_NV = (4 * torch.randn(200, 2048, generator=dice)).log_softmax(-1)
    token_N = torch.randint(2048, (200,), generator=dice)
    setting = float(critical_settings(logp_NV, token_N)["typical"].quantile(0.65))
    assert setting > 0.99999
    kept_NV = us.survivors(us.Typical(setting), logp_NV)
    share = 1 - float(kept_NV.gather(1, token_N[:, None]).double().mean())
    assert share == pytest.approx(0.35, abs=0.006)
