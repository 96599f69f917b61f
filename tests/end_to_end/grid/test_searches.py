"""Every search on every kind of model, in every way of asking: it runs and is right, or refuses in words."""

import copy
import inspect
import math
from collections import defaultdict
from fnmatch import fnmatchcase
from itertools import combinations, product
from types import SimpleNamespace

import pytest
import torch

import unspool as us
from unspool.decode import combine
from unspool.decode.loops import STOP_SPAN
from unspool.decode.picks import PICKS
from unspool.decode.ranking import RANKING
from unspool.decode.search import SEARCHES, UTILITIES
from unspool.decode.transforms import TRANSFORMS
from unspool.heads import HEADS
from unspool.models import MODELS

STOP = ["b", ". ", "w3"]


def test_every_search_model_and_head_is_here(pairs):
    public = {name for name in us.decode.__all__ if inspect.isclass(getattr(us.decode, name))}
    searches = {name for name in public if hasattr(getattr(us.decode, name), "streams")}
    assert {*pairs.EXAMPLES, *pairs.INFILLING} == searches >= set(SEARCHES)
    assert {*pairs.SHAPES, *pairs.MASKED, *pairs.LABELLERS} == set(MODELS)
    assert {head.split()[0] for head in pairs.HEAD_SHAPES} == set(HEADS)
    combined = {name for name in public if getattr(us.decode, name).__module__ == combine.__name__}
    assert combined
    assert combined <= set(pairs.SPEAKERS)
    takes = {
        name for name in searches if "transforms" in inspect.signature(getattr(us.decode, name)).parameters
    }
    assert takes | {"MBR", "Sample", "Speculative"} == set(pairs.RULED)


def test_the_covering_part_of_a_grid_has_every_pair(pairs):
    grid = [
        SimpleNamespace(callspec=SimpleNamespace(params={"a": a, "b": b, "c": c}))
        for a, b, c in product(range(10), range(30), range(16))
    ]
    values = [tuple(it.callspec.params.values()) for it in pairs.covering(grid)]
    for first, second in combinations(range(3), 2):
        sizes = [len({it.callspec.params["abc"[d]] for it in grid}) for d in (first, second)]
        assert len({(it[first], it[second]) for it in values}) == sizes[0] * sizes[1]
    assert len(values) < len(grid) / 8


def test_compiled_steps_are_where_they_are_said_to_be(pairs):
    assert {kind for kind in pairs.SHAPES if pairs.engine_obstacle(pairs.speaker(kind)) is None} == {
        *pairs.STEPS_ARE_COMPILED
    }
    for name in (*pairs.SPEAKERS, *pairs.HEADED):
        engines = {part.engine for part in pairs.parts_of(pairs.speaker(name)) if hasattr(part, "engine")}
        assert ("compiled" in engines) == name.endswith(pairs.COMPILED)


def test_every_refusal_matches_a_cell_and_has_a_reason(pairs):
    models = {name.removesuffix(pairs.COMPILED) for name in (*pairs.SPEAKERS, *pairs.HEADED)}
    aspects = (*ASPECTS, *TRANSFORMS, *PICKS, *RANKING, *UTILITIES)
    for number, (*patterns, words, why) in enumerate(pairs.REFUSALS):
        assert words
        assert len(why.split()) > 2
        for names, pattern in zip((pairs.EXAMPLES, models, aspects), patterns, strict=True):
            assert any(fnmatchcase(name, pattern) for name in names), f"refusal {number}: {pattern!r}"


@pytest.mark.parametrize("filler", ["masked_lm", "masked_seq2seq"])
def test_hidden_places_are_filled_by_searches_of_their_own_and_by_no_others(pairs, filler):
    model = pairs.built(filler)
    for name, decoder in pairs.INFILLING.items():
        outs = us.generate(model, [[5, 6], [7]], decoder(), max_new_tokens=6, seed=1)
        alone = us.generate(model, [7], decoder(), max_new_tokens=6, seed=1)
        assert alone.tokens == outs[1].tokens, name
        pieces = list(us.stream(model, [5, 6], decoder(), max_new_tokens=6, seed=1))
        assert "".join(piece.text for piece in pieces) == outs[0].text
        for speaker in ("transformer_lm", "rnn_seq2seq", "Ensemble", "TableModel"):
            with pytest.raises(ValueError, match="needs a masked model, and a"):
                us.generate(pairs.speaker(speaker), [5], decoder(), max_new_tokens=2)
    for name in pairs.EXAMPLES:
        with pytest.raises(
            (ValueError, TypeError),
            match=r"MaskPredict\(\) or MaskedDiffusion|rewinds rejected|hidden states|draft",
        ):
            us.generate(model, [5], pairs.EXAMPLES[name](pairs.speaker("trigram")), max_new_tokens=2)


def plain(cell, pairs):
    cell.ask(cell.prompts[:1])


def text(cell, pairs):
    if isinstance(cell.model, pairs.TrueModel):
        spelled, ids = "w0", cell.prompts[0]
    else:
        spelled, ids = "fade", cell.prompts[0]
    out = us.generate(cell.model, spelled, cell.decoder, max_new_tokens=4, seed=3)
    assert [out] == cell.ask([ids])[0]


def batch(cell, pairs):
    together = cell.ask()
    for place in (0, 1):
        (alone,) = cell.ask([cell.prompts[place]], seed=cell.SEEDS[place])
        assert [out.tokens for out in alone] == [out.tokens for out in together[place]]
        assert [out.text for out in alone] == [out.text for out in together[place]]


def several(cell, pairs):
    (three,) = cell.ask(cell.prompts[:1], n=3)
    (one,) = cell.ask(cell.prompts[:1])
    if cell.name not in ("StochasticBeam", "BeamSample"):  # what they draw depends on how many are drawn
        assert three[0].tokens == one[0].tokens


def too_many(cell, pairs):
    (five,) = cell.ask(cell.prompts[:1], n=pairs.WIDEST + 1)
    assert len(five) == pairs.WIDEST + 1


def stop(cell, pairs):
    for prompt, group in zip(cell.prompts, cell.ask(stop=STOP, n=3, max_new_tokens=6), strict=True):
        for out in group:
            whole = pairs.spelled(cell.model, prompt, out.tokens)
            places = [whole.index(each) for each in STOP if each in whole]
            assert (out.finish_reason == "stop") == bool(places)
            assert out.text == whole[: min(places, default=None)]


def stop_ids(cell, pairs):
    ends = (5, 7)
    for group in cell.ask(stop_ids=ends, n=2, max_new_tokens=6):
        for out in group:
            assert [token in ends for token in out.tokens[:-1]] == [False] * (len(out.tokens) - 1)
            assert (out.finish_reason == "stop") == (out.tokens[-1] in ends)


def rows(cell, pairs):
    """However few of them are decoded side by side."""
    asked = {"n": 3, "seed": cell.SEEDS[:2]}
    whole, split = (cell.ask(cell.prompts[:2], batch_size=most, **asked) for most in (256, 2))
    assert [[out.tokens for out in group] for group in whole] == [
        [out.tokens for out in group] for group in split
    ]


def alternatives(cell, pairs):
    prompt = cell.prompts[0]
    ((out,),) = cell.ask([prompt], alternatives=12)
    assert len(out.ranked) == len(out.tokens)
    (logp_TV,) = pairs.forced(cell.model, [prompt], [out.tokens])
    for ranked, token, score, logp_V in zip(out.ranked, out.tokens, out.scores, logp_TV, strict=True):
        descending(ranked.model)
        descending(ranked.drawn)
        want = {id_: logp for id_, logp in enumerate(logp_V.tolist()) if logp > -math.inf}
        assert dict(ranked.model) == pytest.approx(want, abs=1e-4)
        if cell.name != "DiverseBeam":  # a later group's scores are less what the groups before it took
            assert dict(ranked.drawn)[token] == pytest.approx(score, abs=1e-6)
    ((few,),) = cell.ask([prompt], alternatives=2)
    assert [each.model for each in few.ranked] == [each.model[:2] for each in out.ranked]
    assert [each.drawn for each in few.ranked] == [each.drawn[:2] for each in out.ranked]


def descending(pairs):
    values = [value for _, value in pairs]
    assert values == sorted(values, reverse=True)


def loop_stop(cell, pairs):
    for group in cell.ask(cell.prompts[1:2], on_loop="stop", max_new_tokens=18):
        for out in group:
            upto = [us.find_loop(out.tokens[:length], 3, STOP_SPAN) for length in range(1, len(out.tokens))]
            assert not any(upto), "it went on after a loop"
            if out.finish_reason == "loop":
                assert out.loop == us.find_loop(out.tokens, 3, STOP_SPAN) is not None
            else:
                assert out.loop is None
            if cell.model is pairs.speaker("TableModel in a circle"):
                assert out.finish_reason == "loop"


def loop_callback(cell, pairs):
    seen = []

    def remember(path, loop):
        seen.append(path)
        assert loop == us.find_loop(path.tokens, 3, STOP_SPAN) is not None
        assert (path.detokenizer is None) == (cell.model.tokenizer is None)
        return False

    watched = cell.ask(cell.prompts[1:2], on_loop=remember, max_new_tokens=18)
    assert watched == cell.ask(cell.prompts[1:2], max_new_tokens=18)
    if cell.model is pairs.speaker("TableModel in a circle"):
        assert seen
    if cell.name not in pairs.RANKING:
        said = [[out.tokens for out in group] for group in watched]
        for path in seen:
            mine = said[path.request][path.sample]
            assert mine[: len(path.tokens)] == path.tokens, "a path that was never taken"


def stream(cell, pairs):
    streamed(cell, cell.ask(n=2), cell.prompts, n=2, max_new_tokens=4, seed=cell.SEEDS)


def streamed(cell, groups, prompts, **asked):
    """What is streamed is what is returned."""
    pieces = defaultdict(list)
    for piece in us.stream(cell.model, prompts, cell.decoder, **asked):
        pieces[piece.request, piece.sample].append(piece)
    wanted = {(r, s): out for r, group in enumerate(groups) for s, out in enumerate(group)}
    assert set(pieces) == set(wanted)
    for key, out in wanted.items():
        assert "".join(piece.text for piece in pieces[key]) == out.text
        for what in ("tokens", "logps", "scores", "ranked"):
            assert sum((getattr(piece, what) for piece in pieces[key]), ()) == getattr(out, what)
        assert [piece.finish_reason for piece in pieces[key]] == [None] * (len(pieces[key]) - 1) + [
            out.finish_reason
        ]


def room(cell, pairs):
    """A prompt that leaves room for three tokens."""
    cell.ask([cell.long(pairs.CONTEXT - 3)])


def full(cell, pairs):
    """A prompt that leaves none."""
    cell.ask([cell.long(pairs.CONTEXT)])


def nan(cell, pairs):
    us.generate(pairs.broken(cell.model), cell.prompts, cell.decoder, max_new_tokens=6, seed=1)


def together(cell, pairs):
    asked = {"n": 2, "alternatives": 2, "on_loop": "stop", "max_new_tokens": 5, "seed": cell.SEEDS[:2]}
    if cell.model.tokenizer:
        asked |= {"stop": STOP}
    prompts = cell.prompts[:2]
    groups = cell.ask(prompts, **asked)
    assert all(len(out.ranked) == len(out.tokens) for group in groups for out in group)
    (alone,) = cell.ask(prompts[1:], **asked | {"seed": cell.SEEDS[1]})
    assert [out.tokens for out in alone] == [out.tokens for out in groups[1]]
    streamed(cell, groups, prompts, **asked)


ASPECTS = {
    it.__name__.replace("_", " "): it
    for it in (
        *(plain, text, batch, several, too_many, stop, stop_ids, rows, alternatives),
        *(loop_stop, loop_callback, stream, room, full, nan, together),
    )
}


def hold(pairs, decoder, model, aspect):
    """The cell runs and holds what its aspect asks, or refuses in the words that the table expects."""
    with pairs.refused(pairs.refusal(decoder, model, aspect)):
        ASPECTS[aspect](pairs.Cell(decoder, model), pairs)


@pytest.mark.parametrize("aspect", ASPECTS)
def test_every_decoder_runs_on_every_model_or_refuses_with_a_message(pairs, decoder, model, aspect):
    hold(pairs, decoder, model, aspect)


def test_every_head_in_every_model(pairs, decoder, headed_model):
    hold(pairs, decoder, headed_model, "together")


def test_in_training_and_in_half_precision(pairs, decoder, kind):
    with pairs.refused(pairs.refusal(decoder, kind, "plain")):
        cell = pairs.Cell(decoder, kind)
        half = copy.deepcopy(cell.model).to(torch.bfloat16)
        asked = {"max_new_tokens": 4, "seed": 1}
        trained = us.generate(half.train(), cell.prompts, cell.decoder, **asked)
        assert half.training
        assert trained == us.generate(half.eval(), cell.prompts, cell.decoder, **asked)
        for prompt, out in zip(cell.prompts, trained, strict=True):
            (logp_TV,) = pairs.forced(half, [prompt], [out.tokens])
            want = [logp_V[token].item() for logp_V, token in zip(logp_TV, out.tokens, strict=True)]
            assert out.logps == pytest.approx(want, abs=0.1)
