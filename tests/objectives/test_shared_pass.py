import torch

from unspool.objectives.weighted_sum import SharedPass


class Counting:
    """Counts its passes."""

    attention_reading = None
    infilling = None
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


class Filling(Telling):
    @property
    def infilling(self):
        return self

    def read_hidden(self, batch, stacks=None):
        self.passes.append((batch, stacks is not None))
        if stacks is not None:
            stacks.append("stack")
        return torch.ones(2), "lengths"


def test_one_pass_however_often_it_is_asked():
    model = Counting()
    shared = SharedPass(model, "batch", watched=False)
    assert shared.hidden_for("batch") is shared.hidden_for("batch")
    assert model.passes == ["batch"]


def test_a_pass_without_gradients_is_not_shared():
    model = Telling()
    shared = SharedPass(model, "batch", watched=True)
    with torch.no_grad():
        shared.hidden_for("batch")
        assert shared.read_attention("batch")[1] == ("stack",)
    shared.hidden_for("batch")
    shared.read_attention("batch")
    assert model.passes == ["batch", ("batch", "told"), ("batch", "told")]


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


def test_hidden_places_are_read_as_they_were_hidden():
    model = Filling()
    shared = SharedPass(model, "batch", watched=True)
    hidden, lengths = shared.infilling.read_hidden("batch with hidden places")
    assert lengths == "lengths"
    assert shared.read_attention("batch")[0] is hidden
    assert shared.read_attention("batch")[1] == ("stack",)
    assert model.passes == [("batch with hidden places", True)]
    quiet = SharedPass(model, "batch", watched=False)
    quiet.read_hidden("batch with hidden places")
    assert model.passes[1:] == [("batch with hidden places", False)]


def test_all_else_is_the_model_s():
    shared = SharedPass(Counting(), "batch", watched=False)
    assert shared.text == "its own"
    assert shared.attention_reading is None
    assert shared.infilling is None
