import pytest
import torch

import unspool as us


class Streamer:
    def __init__(self):
        self.put_in, self.ended = [], False

    def put(self, value):
        self.put_in.append(value.tolist())

    def end(self):
        self.ended = True


@pytest.mark.parametrize("search", [us.Sample(us.TopP(0.9)), us.Greedy(), us.Beam(3)], ids=repr)
@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_streamer_is_given_the_prompt_and_then_every_token(families, family, search):
    model, streamer = families[family], Streamer()
    ids = torch.tensor([[9, 8, 7, 2]])
    asked = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, "seed": 4}
    said = model.generate(ids, custom_generate=us.hf.decoder(search), stream_to=streamer, **asked)
    first, *tokens = streamer.put_in
    new = 1 if family == "bart" else 4
    assert first == said[:, :new].tolist()
    assert [token for (token,) in tokens] == said[0, new:].tolist()
    assert streamer.ended


def test_a_streamer_shows_one_text(llama, ask):
    with pytest.raises(ValueError, match="a streamer shows one text"):
        llama.generate(**ask(llama), custom_generate=us.hf.greedy(), stream_to=Streamer())
