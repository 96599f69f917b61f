import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.data.batch import Batch
from unspool.interfaces import Clock
from unspool.models.masked_models import MaskedLMConfig, MaskedSeq2SeqConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.expected_reward import MinimumRisk, Reinforce
from unspool.objectives.masked import Masked, MaskedDiffusionLoss, MaskedObjective
from unspool.objectives.scheduled_sampling import ScheduledSampling
from unspool.objectives.unlikelihood import SequenceUnlikelihood, Unlikelihood
from unspool.objectives.weighted_sum import AuxiliarySettings, WeightedSum
from unspool.tokenization import train_words


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_a_random_number_of_real_places_is_hidden_and_a_row_counts_as_its_tokens(lengths, seed):
    torch.manual_seed(seed)
    lengths_N = torch.tensor(lengths)
    weights_NT = Masked().weigh(lengths_N, torch.rand(len(lengths)), torch.rand(len(lengths), max(lengths)))
    hidden_N = (weights_NT > 0).sum(1)
    assert (hidden_N >= 1).all()
    assert (hidden_N <= lengths_N).all()
    assert all(not weights_NT[row, length:].any() for row, length in enumerate(lengths))
    torch.testing.assert_close(weights_NT.sum(1), lengths_N.float())


def test_every_number_is_as_frequent():
    torch.manual_seed(0)
    weights_NT = Masked().weigh(torch.full((6000,), 3), torch.rand(6000), torch.rand(6000, 3))
    counts = torch.bincount((weights_NT > 0).sum(1), minlength=4)
    assert counts[0] == 0
    assert (counts[1:] / 6000 - 1 / 3).abs().max() < 0.03
    places = (weights_NT > 0).float().mean(0)
    assert (places - 2 / 3).abs().max() < 0.03


SHAPE = {"vocab_size": 7, "width": 8, "heads": 2, "inner_width": 8}
PAIRS = MaskedSeq2SeqConfig(**SHAPE, encoder_layers=1, decoder_layers=1, bos=1, eos=2, longest=5)
BATCH = Batch(
    torch.tensor([[1, 4, 5], [1, 6, 0]]),
    torch.tensor([3, 2]),
    torch.tensor([[4, 5, 2], [6, 2, 0]]),
    torch.ones(2, 3),
    torch.tensor([[5, 4, 2], [6, 2, 0]]),
    torch.tensor([3, 2]),
)


class First(MaskedObjective):
    """Hides the first place of each row, and counts it twice."""

    def weigh(self, lengths_N, rate_N, place_NT):
        weights_NT = torch.zeros(place_NT.shape)
        weights_NT[:, 0] = 2.0
        return weights_NT


def test_the_loss_by_hand():
    torch.manual_seed(0)
    model = PAIRS.build().eval()
    loss = First()(model, BATCH, Clock(0, 1))
    one, other = model.fill([[5, 4], [6]], [[7, 5, 2], [7, 2]])
    expected = -2 * (one[0, 4] + other[0, 6])
    with torch.no_grad():
        memory = model.encoder(BATCH.source_NS, BATCH.source_lengths_N)
        length_NL = model.length_logp(memory, BATCH.source_lengths_N)
    lengths = -(length_NL[0, 2] + length_NL[1, 1])
    torch.testing.assert_close(loss.total, expected + lengths)
    assert loss.stats == {
        "nll": pytest.approx(float(expected + lengths)),
        "length": pytest.approx(float(lengths)),
    }
    assert loss.weight == 5.0


def test_eos_behind_a_text_is_learnt_and_not_counted():
    torch.manual_seed(0)
    model = MaskedLMConfig(**SHAPE, layers=1, eos=2).build().eval()

    class All(MaskedObjective):
        def weigh(self, lengths_N, rate_N, place_NT):
            return (torch.arange(place_NT.shape[1]) < lengths_N[:, None]).float()

    torch.manual_seed(1)
    masked = All().mask_batch(model, BATCH)
    assert masked.lengths_N.sum() > 5
    torch.manual_seed(1)
    loss = All()(model, BATCH, Clock(0, 1))
    with torch.no_grad():
        logp = model.head(model.hidden_for(masked)).gather(-1, masked.targets_NU[..., None])[..., 0]
    rows = list(zip((3, 2), masked.lengths_N.tolist(), strict=True))
    assert loss.total.item() == pytest.approx(
        -sum(logp[at, :all_].sum().item() for at, (_, all_) in enumerate(rows))
    )
    assert loss.stats["nll"] == pytest.approx(
        -sum(logp[at, :text].sum().item() for at, (text, _) in enumerate(rows))
    )
    assert loss.weight == 5.0


def test_models_that_say_one_token_after_another_are_refused():
    with pytest.raises(ValueError, match="TransformerLM, which is autoregressive"):
        Masked().check(TransformerConfig(**SHAPE, layers=1).build())
    Masked().check(PAIRS.build())
    assert Masked().masks_tokens
    assert not Masked().own_batches


@pytest.mark.parametrize(
    "objective",
    [CrossEntropy(), Unlikelihood(), SequenceUnlikelihood(), ScheduledSampling(), Reinforce(), MinimumRisk()],
)
def test_what_is_of_the_next_token_refuses_models_that_fill_places(objective):
    masked = PAIRS.build(train_words(["a b c"]))
    beside = WeightedSum(Masked(), ((objective, AuxiliarySettings(0.5, begin=1000)),))
    for it in (objective, beside):
        with pytest.raises(ValueError, match="predicts the next token, but MaskedSeq2Seq is a masked model"):
            it.check(masked)


def test_a_language_model_learns_what_stands_behind_the_end():
    torch.manual_seed(0)
    model = MaskedLMConfig(**SHAPE, layers=1, eos=2).build()
    texts_NT, lengths_N = model.whole_texts(BATCH, torch.tensor([0.0, 0.9]))
    assert texts_NT.tolist() == [[4, 5, 2, 2], [6, 2, 2, 2]]
    assert lengths_N.tolist() == [3, 4]
    loss = Masked()(model, BATCH, Clock(0, 1))
    assert math.isfinite(float(loss.total.detach()))
    loss.total.backward()
    assert model.mask.grad is not None


def test_a_place_counts_once_in_the_mean_by_any_t():
    torch.manual_seed(0)
    weights_NT = MaskedDiffusionLoss().weigh(torch.full((20000,), 2), torch.rand(20000), torch.rand(20000, 3))
    assert not weights_NT[:, 2].any()
    assert (weights_NT[:, :2].mean(0) - 1).abs().max() < 0.05
    shown = weights_NT[:, :2][weights_NT[:, :2] > 0]
    assert shown.min() >= 1.0
    assert shown.max() <= 50.0


def test_hidden_shares_are_uniform():
    torch.manual_seed(0)
    lengths_N, rate_N, place_NT = torch.full((3000,), 200), torch.rand(3000), torch.rand(3000, 200)
    share_N = (MaskedDiffusionLoss(0.001).weigh(lengths_N, rate_N, place_NT) > 0).float().mean(1)
    assert abs(float(share_N.mean()) - 0.5) < 0.02
    assert abs(float(share_N.var()) - 1 / 12) < 0.01


def test_t_is_uniform_and_raised_to_the_least():
    rate_N = torch.tensor([0.0, 0.05, 0.2, 0.7])
    found_NT = MaskedDiffusionLoss(0.1).weigh(torch.ones(4).long(), rate_N, torch.zeros(4, 1))
    assert found_NT[:, 0].tolist() == pytest.approx([1 / 0.1, 1 / 0.1, 1 / 0.2, 1 / 0.7])


def test_invalid_settings_are_refused():
    with pytest.raises(ValueError, match="least is 0"):
        MaskedDiffusionLoss(0.0)
