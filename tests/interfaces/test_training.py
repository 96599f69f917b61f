from unspool.interfaces import Feed, Loss, Objective


class Plain(Objective):
    def __call__(self, model, batch, clock):
        return Loss(0.0, 1.0)


class Batches(Feed):
    per_epoch = 1

    def batch(self, number):
        return number


def test_an_objective_and_a_feed_do_nothing_that_they_do_not_say():
    objective = Plain()
    assert (objective.watches, objective.own_batches, objective.hides) == (False, False, False)
    assert objective.check(None) is None
    assert objective.files() == {}
    assert objective(None, None, None).stats == {}
    assert not Batches().carries
