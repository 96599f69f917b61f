import torch

from unspool.decode.picks import ArgMax
from unspool.protocols import Step

SCORES = torch.tensor([[0.1, 0.7, 0.2], [0.4, 0.2, 0.4]]).log()


def test_the_most_probable_token_and_the_smallest_of_equals():
    assert ArgMax().draw(SCORES, Step(SCORES), []).tolist() == [1, 0]
