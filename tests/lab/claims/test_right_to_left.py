from unspool.data.known_languages.made_data import is_for_validation
from unspool.lab.claims.right_to_left import CLAIM, held_out


def test_both_orders_are_asked_the_same_sums():
    forwards, backwards = held_out(10, False), held_out(10, True)
    assert [source for source, _ in forwards] == [source for source, _ in backwards]
    assert [target for _, target in forwards] == [target[::-1] for _, target in backwards]
    assert all(is_for_validation(source) for source, _ in forwards)


def test_every_part_can_fail(every_part_can_fail):
    good = {"left to right": [0.1, 0.5], "right to left": [0.2, 0.9]}
    every_part_can_fail(CLAIM, good, [{"right to left": [0.2, 0.55]}, {"left to right": [0.3, 0.5]}])
