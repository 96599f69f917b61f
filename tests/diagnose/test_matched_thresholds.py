import pytest
import torch

import unspool as us
from unspool.diagnose.matched_thresholds import rejected_shares, thresholds
from unspool.evaluate.teacher_forcing import windows
from unspool.testing import bigram, random_table

ROWS = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.25, 0.35, 0.4]]


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    config = us.models.TransformerConfig(
        vocab_size=50,
        width=16,
        layers=1,
        heads=2,
        kv_heads=2,
        head_width=8,
        inner_width=32,
        context=32,
    )
    model = us.models.TransformerLM(config).eval()
    with torch.no_grad():
        model.embed.weight.mul_(2)  # further from uniform
    text = torch.randint(50, (90,)).tolist()
    return model, text


def test_by_hand():
    # 0→1 0.3, 1→1 0.6, 1→2 0.3, 2→0 0.25, 0→2 0.2: of five tokens one is below 0.25
    found = {m.sampler: m for m in thresholds(bigram(ROWS), [[0, 1, 1, 2, 0, 2]], [0.2])}
    assert found["epsilon"].setting == pytest.approx((0.2 + 0.25) / 2)
    assert found["epsilon"].rejected == 0.2
    assert found["top-k"].setting == 3  # two tokens have rank 3: both or neither
    assert found["top-k"].rejected == 0
    # mass before: 0.5, 0, 0.6, 0.75, 0.8
    assert found["top-p"].setting == pytest.approx((0.75 + 0.8) / 2)
    # p / max p: 0.6, 1, 0.5, 0.625, 0.4
    assert found["min-p"].setting == pytest.approx(0.45)
    assert {m.tokens for m in found.values()} == {5}
    assert "kappa" not in found  # a table has no width
    assert "BA-ε" not in found


def test_closed_forms_reject_the_given_share(small):
    model, text = small
    shares = [0.05, 0.3]
    found = thresholds(model, [text], shares, basis_tokens=0, context=32)
    assert len(found) == 18
    assert not any(m.sampler.startswith("BA") for m in found)
    parts = prefixes(text)
    logp_TV = torch.cat([model.start([before])[0].logp_NV for before, _ in parts])
    token_T = torch.tensor([token for _, token in parts])
    for match in found:
        (rule,) = us.parse(match.decoder).transforms
        kept_T = us.survivors(rule, logp_TV)[torch.arange(len(token_T)), token_T]
        assert (~kept_T).float().mean().item() == pytest.approx(match.rejected, abs=1.1 / len(token_T)), match
        assert match.rejected <= match.share


def prefixes(text):
    return [
        (part.tokens[:place], part.tokens[place])
        for part in windows([text], 32)
        for place in range(part.first, len(part.tokens))
    ]


def test_basis_aware_is_milder_than_its_threshold(small):
    model, text = small
    found = {m.sampler: m for m in thresholds(model, [text], [0.1], rank=4)}
    # What a threshold keeps, the test keeps: to reject as many tokens, the threshold must be larger.
    assert found["BA-ε"].setting >= found["epsilon"].setting * 0.98
    assert found["BA-η"].setting >= found["eta"].setting * 0.98
    assert found["BA-ε"].tokens == len(text) - 1


def test_basis_aware_looks_at_a_sample(small):
    model, text = small
    found = {m.sampler: m for m in thresholds(model, [text], [0.1], rank=2, basis_tokens=30)}
    assert found["BA-η"].tokens == 30
    assert found["eta"].tokens == len(text) - 1


def test_progress_ends_at_all_tokens():
    calls = []
    thresholds(random_table(7, 1), [[0, 1, 2, 3], [4, 5]], progress=lambda *call: calls.append(call))
    assert calls[-1] == (4, 4)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_invalid_shares_raise():
    with pytest.raises(ValueError, match="shares is empty"):
        thresholds(bigram(ROWS), [[0, 1]], [])
    with pytest.raises(ValueError, match=r"share is 1\.5"):
        thresholds(bigram(ROWS), [[0, 1]], [1.5])
    with pytest.raises(ValueError, match="basis_tokens is -1"):
        thresholds(bigram(ROWS), [[0, 1]], basis_tokens=-1)
    with pytest.raises(ValueError, match="text 0 has 1 tokens"):
        thresholds(bigram(ROWS), [[0]])


def test_shares_by_hand():
    # 0→1 0.3, 1→1 0.6, 1→2 0.3, 2→0 0.25, 0→2 0.2, with ranks 2 1 2 3 3 and masses before 0.5 0 0.6 0.75 0.8
    settings = {"epsilon": 0.28, "top-k": 2, "top-p": 0.7, "min-p": 0.0}
    found = rejected_shares(bigram(ROWS), [[0, 1, 1, 2, 0, 2]], settings)
    assert found == {"epsilon": 0.4, "top-k": 0.4, "top-p": 0.4, "min-p": 0.0}


def test_shares_and_settings_are_each_other_s_inverse(small):
    model, text = small
    for match in thresholds(model, [text], [0.2], basis_tokens=0):
        assert rejected_shares(model, [text], {match.sampler: match.setting}) == {
            match.sampler: match.rejected
        }


def test_an_unknown_sampler_raises():
    with pytest.raises(ValueError, match="nucleus is unknown: choose from epsilon"):
        rejected_shares(bigram(ROWS), [[0, 1]], {"nucleus": 0.9})
