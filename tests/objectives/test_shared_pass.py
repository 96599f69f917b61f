import torch

from unspool.objectives.shared_pass import SharedPass


class Counting:
    """Counts its passes."""

    attention_reading = None
    text = "its own"

    def __init__(self):
        self.passes = []

    def hidden_for(self, batch):
        self.passes.append(batch)
        return torch.zeros(1)


class Telling(Counting):
    @property
    def attention_reading(self):
        return self

    def read_attention(self, batch):
        self.passes.append((batch, "told"))
        return torch.ones(1), ("stack",)


def test_one_pass_however_often_it_is_asked():
    model = Counting()
    shared = SharedPass(model, "batch", watched=False)
    assert shared.hidden_for("batch") is shared.hidden_for("batch")
    assert model.passes == ["batch"]


def test_another_batch_is_another_pass():
    model, batch = Counting(), ["batch"]
    shared = SharedPass(model, batch, watched=False)
    shared.hidden_for(batch)
    shared.hidden_for(list(batch))
    assert len(model.passes) == 2


def test_whoever_comes_first_where_attention_is_wanted_there_is_one_pass():
    for order in ((0, 1), (1, 0)):
        model = Telling()
        shared = SharedPass(model, "batch", watched=True)
        asks = [lambda: shared.hidden_for("batch"), lambda: shared.attention_reading.read_attention("batch")]  # noqa: B023
        for at in order:
            asks[at]()
        assert model.passes == [("batch", "told")]
        assert shared.read_attention("batch") == (torch.ones(1), ("stack",))


def test_all_else_is_the_model_s():
    shared = SharedPass(Counting(), "batch", watched=False)
    assert shared.text == "its own"
    assert shared.attention_reading is None
