import numpy as np
import pytest
import torch

from unspool.lab.claim import silent
from unspool.lab.claims.output_geometry import CUTS, can_rank, dropped_with_proof, inside, learn, longest


def test_the_share_of_a_gradient_in_the_column_space_by_hand():
    matrix = torch.tensor([[2.0], [0.0], [0.0]])
    assert inside(matrix, torch.tensor([[3.0, 4.0, 0.0]])) == pytest.approx(9 / 25)
    assert inside(matrix, torch.tensor([[3.0, 4.0, 0.0], [5.0, 0.0, 0.0]])) == pytest.approx(34 / 50)


def test_every_gradient_is_inside_the_space_of_a_square_matrix():
    generator = torch.Generator().manual_seed(1)
    assert inside(torch.randn(5, 5, generator=generator), torch.randn(3, 5, generator=generator)) == (
        pytest.approx(1.0)
    )


def test_training_approaches_the_truth():
    true = torch.randn(512, 1000, generator=torch.Generator().manual_seed(1)).softmax(-1)
    few, many = (learn(true, 8, updates, 1e-2, 1)[0] for updates in (1, 30))
    assert 0 < many < few


def test_words_on_a_line_can_be_ranked_from_either_end():
    line = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert can_rank(line, [3, 2])
    assert can_rank(line, [0, 1, 2])
    assert not can_rank(line, [1])  # it is between others
    assert not can_rank(line, [3, 1])
    assert longest(line, [3, 2, 0, 1]) == 2


def test_a_ranking_is_possible_for_the_matrix_that_made_it():
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((60, 4))
    ranking = (matrix @ rng.standard_normal(4)).argsort()[::-1]
    assert longest(matrix, ranking[:30].tolist()) == 30
    assert longest(rng.permutation(matrix), ranking[:30].tolist()) < 30


def test_shares_of_proved_tokens_are_measured():
    numbers = dropped_with_proof.measure(1, True, silent)
    shares = [numbers[f"{name}: proved, {half} entropy"] for name in CUTS for half in ("higher", "lower")]
    assert all(0 <= share <= 1 for share in shares)
    assert max(shares) > 0.2
