import math

import pytest
import torch

from unspool.data.batch import Batch
from unspool.interfaces import Clock
from unspool.models.masked_lm import MaskedLMConfig
from unspool.models.masked_seq2seq import MaskedSeq2SeqConfig
from unspool.models.transformer_lm import TransformerConfig
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.expected_reward import MinimumRisk, Reinforce
from unspool.objectives.masked import HidingObjective, Masked
from unspool.objectives.scheduled_sampling import ScheduledSampling
from unspool.objectives.unlikelihood import SequenceUnlikelihood, Unlikelihood
from unspool.objectives.weighted_sum import Share, WeightedSum
from unspool.tokenization import train_words

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


class First(HidingObjective):
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

    class All(HidingObjective):
        def weigh(self, lengths_N, rate_N, place_NT):
            return (torch.arange(place_NT.shape[1]) < lengths_N[:, None]).float()

    torch.manual_seed(1)
    masked = All().hidden_places(model, BATCH)
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
    with pytest.raises(ValueError, match="a TransformerLM says one token after another"):
        Masked().check(TransformerConfig(**SHAPE, layers=1).build())
    Masked().check(PAIRS.build())
    assert Masked().hides
    assert not Masked().own_batches


@pytest.mark.parametrize(
    "objective",
    [CrossEntropy(), Unlikelihood(), SequenceUnlikelihood(), ScheduledSampling(), Reinforce(), MinimumRisk()],
)
def test_what_is_of_the_next_token_refuses_models_that_fill_places(objective):
    masked = PAIRS.build(train_words(["a b c"]))
    beside = WeightedSum(Masked(), ((objective, Share(0.5, begin=1000)),))
    for it in (objective, beside):
        with pytest.raises(ValueError, match="is of the next token, and a MaskedSeq2Seq fills hidden places"):
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
