from unspool.lab.claims.gradient_to_source import CLAIM, reach
from unspool.models.rnn_seq2seq import RNNSeq2SeqConfig


def test_of_one_word_the_first_is_the_last():
    model = RNNSeq2SeqConfig(
        vocab_size=9, width=4, bidirectional=False, context_kind="last", bos=1, eos=2
    ).build()
    assert reach(model, 1, 3) == 1.0


def test_every_part_can_fail(every_part_can_fail):
    good = {"fixed": [0.5, 0.2, 0.1, 1e-5], "attention": [1.0, 1.0, 1.0, 0.3]}
    changes = [{"fixed": [0.1]}, {"attention": [1.0, 1.0, 1.0, 1e-5]}, {"attention": [1.0, 1.0, 9.0, 0.3]}]
    every_part_can_fail(CLAIM, good, changes)
