import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from unspool import config
from unspool.decode.combine import Ensemble
from unspool.decode.generate import agenerate, generate, stream
from unspool.decode.hypothesis import SearchStep
from unspool.decode.output import Output
from unspool.decode.run import Run
from unspool.decode.search import Beam, ContrastiveSearch, Greedy, Sample, Speculative
from unspool.decode.spec import parse
from unspool.decode.transforms import TopP
from unspool.interfaces import Abilities, Step
from unspool.testing import TableModel, bigram, random_table

LETTERS = "abcdefgh."


class LetterWatch:
    """A one-letter-per-token watch with stop strings, enough to test the loop without the text room."""

    def __init__(self, text="", stop=(), finish=None):
        self.whole, self.stop, self.finish_reason = text, stop, finish

    @property
    def text(self):
        return (
            self.whole
            if self.finish_reason
            else self.whole[: len(self.whole) - max(map(len, self.stop), default=1) + 1]
        )

    def push(self, token):
        whole = self.whole + LETTERS[token]
        for stop in self.stop:
            if stop in whole:
                return LetterWatch(whole[: whole.index(stop)], self.stop, "stop")
        return LetterWatch(whole, self.stop)

    def close(self):
        return self.whole


class Letters:
    vocab_size, bos_id, eos_ids = 9, 0, frozenset({8})

    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[i] for i in ids if i != 8)

    def show(self, token):
        return LETTERS[token]

    def detokenizer(self, stop=(), after=None):
        return LetterWatch(stop=tuple(stop))


def cycle(row):
    """a → b → … → h → . (the end)."""
    p = [0.01] * 9
    p[(row[-1] + 1) % 9] = 0.92
    return p


MODEL = TableModel(cycle, tokenizer=Letters(), context=40)


def test_one_prompt_gives_one_output():
    out = generate(MODEL, "c", max_new_tokens=3)
    assert isinstance(out, Output)
    assert (out.text, out.tokens, out.finish_reason) == ("def", (3, 4, 5), "length")


def test_the_end_of_text_ends():
    out = generate(MODEL, "f")
    assert (out.text, out.tokens, out.finish_reason) == ("gh", (6, 7, 8), "eos")


def test_a_list_gives_a_list_and_n_gives_lists():
    assert [o.text for o in generate(MODEL, ["a", "ef"], max_new_tokens=2)] == ["bc", "gh"]
    assert [o.text for o in generate(MODEL, ["a"], max_new_tokens=1)] == ["b"]
    assert [o.text for o in generate(MODEL, "a", n=2, max_new_tokens=1)] == ["b", "b"]
    assert [[o.text for o in group] for group in generate(MODEL, ["a", "b"], n=2, max_new_tokens=1)] == [
        ["b", "b"],
        ["c", "c"],
    ]


def test_token_ids_are_prompts_too():
    assert generate(MODEL, [0, 1], max_new_tokens=2).text == "cd"
    assert [o.text for o in generate(MODEL, [[0], [1]], max_new_tokens=1)] == ["b", "c"]


def test_stop_strings_cut_the_text():
    out = generate(MODEL, "a", stop="de")
    assert (out.text, out.tokens, out.finish_reason) == ("bc", (1, 2, 3, 4), "stop")


@pytest.mark.parametrize("stop_ids", [3, [3], {3}, np.array([3]), torch.tensor([3])], ids=repr)
def test_stop_ids_of_any_type_end_the_text(stop_ids):
    assert generate(MODEL, "a", stop_ids=stop_ids).tokens == (1, 2, 3)


@pytest.mark.parametrize("stop", [(), ("ef",), ("zz", "gh")])
def test_streamed_pieces_add_up_to_the_text(stop):
    out = generate(MODEL, "a", stop=stop)
    pieces = list(stream(MODEL, "a", stop=stop))
    assert "".join(piece.text for piece in pieces) == out.text
    assert sum((piece.tokens for piece in pieces), ()) == out.tokens
    assert all(piece.text for piece in pieces[:-1])
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + [out.finish_reason]


def test_streams_of_several_rows_are_told_apart():
    decoder = Sample()
    outs = generate(MODEL, ["a", "bc"], decoder, n=2, seed=4)
    texts = {}
    for piece in stream(MODEL, ["a", "bc"], decoder, n=2, seed=4):
        texts[piece.request, piece.sample] = texts.get((piece.request, piece.sample), "") + piece.text
    assert texts == {(i, j): outs[i][j].text for i in range(2) for j in range(2)}


def test_the_context_is_a_limit():
    out = generate(bigram([[0.5, 0.5]] * 2), [0], max_new_tokens=7)
    assert len(out.tokens) == 7
    short = TableModel(lambda row: [0.5, 0.5], context=4)
    assert generate(short, [0], Greedy(), max_new_tokens=7).tokens == (0, 0, 0)
    assert [len(o.tokens) for o in generate(short, [[0], [0, 0, 0]], max_new_tokens=7)] == [3, 1]


def test_an_output_tells_the_seed_that_made_it():
    model = random_table(20, seed=1)
    out = generate(model, [1], Sample(), max_new_tokens=10)
    assert generate(model, [1], Sample(), max_new_tokens=10, seed=out.seed) == out
    several = generate(model, [[1], [2]], Sample(), max_new_tokens=10, seed=[5, 6])
    assert [o.seed for o in several] == [5, 6]
    assert several[1] == generate(model, [2], Sample(), max_new_tokens=10, seed=6)


def test_the_default_is_that_of_the_command_line():
    model = random_table(20, seed=1)
    same = parse(config.DECODER)
    assert generate(model, [1], seed=4).tokens == generate(model, [1], same, seed=4).tokens


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([], {}, "no prompt"),
        ("", {}, r"prompt 0 is empty.*\[0\]"),
        (["a", ""], {}, "prompt 1 is empty"),
        ([[0], []], {}, "prompt 1 is empty"),
        ("a", {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ("a", {"n": 0}, "n is 0"),
        ("a", {"seed": [1, 2]}, "2 seeds for 1 prompts"),
        ([0, 9], {}, "token 9, outside the model's vocabulary 0…8"),
        ("a" * 40, {}, "40 tokens but the context is 40"),
    ],
)
def test_bad_input_is_named_before_the_model_is_called(prompts, options, message):
    with pytest.raises(ValueError, match=message):
        generate(MODEL, prompts, **options)
    with pytest.raises(ValueError, match=message):
        stream(MODEL, prompts, **options)


@pytest.mark.parametrize(
    ("prompts", "options"), [(3, {}), ([0, "a"], {}), ("a", {"seed": 1.5}), ([[0.5]], {})]
)
def test_wrong_types_are_named(prompts, options):
    with pytest.raises(TypeError):
        generate(MODEL, prompts, **options)


def test_a_model_without_text_says_so():
    model = random_table(5, seed=0)
    with pytest.raises(ValueError, match="no tokenizer"):
        generate(model, "hello")
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        generate(model, [1], stop="x")
    assert generate(model, [1], max_new_tokens=2).text == ""


class Answers(TableModel):
    is_encoder_decoder = True


def test_what_answers_a_source_does_not_go_on_after_it():
    seen = []

    class Watched(Letters):
        def detokenizer(self, stop=(), after=None):
            seen.append(after)
            return super().detokenizer(stop, after)

    for kind in (TableModel, Answers):
        model = kind(cycle, tokenizer=Watched())
        generate(Ensemble([model, model]), [0, 1], max_new_tokens=1)
        generate(model, [0, 1], max_new_tokens=1)
    assert seen == [1, 1, None, None]


@pytest.mark.parametrize("decoder", [Sample(), Greedy(), Beam(2), Sample(TopP(0.9))], ids=repr)
def test_whole_numbers_of_any_kind_are_taken(decoder):
    model = random_table(9, seed=0)
    want = generate(model, [1, 2], decoder, max_new_tokens=5, seed=3, n=2)
    options = {"max_new_tokens": np.int64(5), "seed": np.int32(3), "n": np.int64(2)}
    for prompt in (np.array([1, 2]), torch.tensor([1, 2]), [np.int64(1), torch.tensor(2)]):
        assert generate(model, prompt, decoder, **options) == want
    matrix = generate(model, torch.tensor([[1, 2], [3, 4]]), decoder, max_new_tokens=5, seed=np.array([3, 3]))
    assert matrix[0].tokens == want[0].tokens
    assert len(matrix) == 2


@pytest.mark.parametrize(
    ("decoder", "words"),
    [
        (TopP(0.9), r"wrap it, us\.Sample\(TopP"),
        (Sample, r"create one, Sample\("),
        (3, "is not a decoder"),
    ],
)
def test_values_that_are_not_decoders_are_refused(decoder, words):
    with pytest.raises(TypeError, match=words):
        generate(MODEL, "a", decoder)
    with pytest.raises(TypeError, match=words):
        stream(MODEL, "a", decoder)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("smollm2", r"us\.load\('smollm2'\)"),
        (None, "cannot be decoded"),
        (int, "is the class int: give a model"),
    ],
)
def test_a_value_that_is_not_a_model_is_refused(model, words):
    with pytest.raises(TypeError, match=words):
        generate(model, "a")


@pytest.mark.parametrize(
    ("prompts", "options", "words"),
    [
        (b"abc", {}, "decode"),
        ([b"abc"], {}, "decode"),
        ([None], {}, "prompt 0 is None"),
        ({"role": "user", "content": "a"}, {}, "Put it in a list"),
        (iter("ab"), {}, "prompts is"),
        ("a", {"stop": 3}, "stop is 3"),
        ("a", {"stop": ["a", 3]}, "give token ids as stop_ids"),
        ("a", {"stop_ids": "a"}, "stop_ids is 'a'"),
        ("a", {"max_new_tokens": 2.5}, "max_new_tokens is 2.5"),
        ("a", {"n": True}, "n is True"),
        ("a", {"batch_size": None}, "batch_size is None"),
        ("a", {"seed": "x"}, "seed is 'x'"),
        ("a", {"seed": [1.5]}, "seed holds 1.5"),
    ],
)
def test_wrong_types_are_told_in_words(prompts, options, words):
    with pytest.raises(TypeError, match=words):
        generate(MODEL, prompts, **options)


def test_stop_may_be_none_and_a_lone_surrogate_is_refused():
    assert generate(MODEL, "a", Greedy(), stop=None, seed=0) == generate(MODEL, "a", Greedy(), seed=0)
    with pytest.raises(ValueError, match="lone surrogate"):
        generate(MODEL, "a", stop="\ud800")


def test_a_stop_token_ends_a_text_and_is_not_shown():
    chain = bigram([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    for decoder in (Greedy(), Sample(), Beam(1)):
        out = generate(chain, [0], decoder, stop_ids=2, max_new_tokens=9)
        assert (out.tokens, out.finish_reason) == ((1, 2), "stop")
    with pytest.raises(ValueError, match="stop_ids holds token 7"):
        generate(chain, [0], stop_ids=[7])


@pytest.mark.parametrize("decoder", [Sample(), Greedy(), Beam(3), ContrastiveSearch(2)], ids=repr)
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_no_text_depends_on_how_many_rows_stand_side_by_side(decoder, rows):
    model = Hidden(9)
    prompts = [[1], [2, 3], [4], [5, 6, 7]]
    options = {"max_new_tokens": 6, "seed": [1, 2, 3, 4], "n": 3}
    assert generate(model, prompts, decoder, batch_size=rows, **options) == generate(
        model, prompts, decoder, **options
    )


def test_many_samples_do_not_make_one_giant_batch():
    widest = []

    class Counting(TableModel):
        def start(self, prompts):
            return super().start(prompts)

        def step(self, state, tokens_N):
            widest.append(len(tokens_N))
            return super().step(state, tokens_N)

    outs = generate(Counting(lambda row: [0.5, 0.5]), [0], Sample(), n=1000, max_new_tokens=2, seed=0)
    assert len(outs) == 1000
    assert max(widest) == config.MAX_BATCH_ROWS


def test_texts_come_in_order_as_soon_as_those_before_them_are_there():
    class Recorded(Abilities):
        """Ends texts in this order: (prompt, sample)."""

        streams = True
        order = ((0, 1), (1, 0), (0, 0), (1, 1))
        ended = 0

        def __call__(self, model, job):
            for request, sample in self.order:
                self.ended += 1
                path = job.hypothesis(request, sample).extend(0, -1.0, -1.0, job)
                yield SearchStep((), (replace(path, finish_reason="length"),))

    decoder = Recorded()
    run = Run(bigram([[1.0]]), [[0], [0]], decoder, n=2, max_new_tokens=1, seed=0)
    found = [(path.request, path.sample, decoder.ended) for path in run.finished()]
    assert found == [(0, 0, 3), (0, 1, 3), (1, 0, 3), (1, 1, 4)]


def test_a_ranking_search_with_fewer_texts_holds_up_no_other():
    class Ranking:
        """One text for each prompt, whatever was asked for."""

        streams = False
        ended = 0

        def __call__(self, model, job):
            for request in (1, 0, 2):
                self.ended += 1
                path = job.hypothesis(request, 0).extend(0, -1.0, -1.0, job)
                yield SearchStep((), (replace(path, finish_reason="length"),))

    decoder = Ranking()
    run = Run(bigram([[1.0]]), [[0]] * 3, decoder, n=2, max_new_tokens=1, seed=0)
    found = [(path.request, decoder.ended) for path in run.finished()]
    assert found == [(0, 2), (1, 2), (2, 3)]


def test_alternatives_can_be_read():
    out = generate(MODEL, "ab", Greedy(), max_new_tokens=2, alternatives=2)
    assert [step.texts[token] for step in out.ranked for token, _ in step.model[:1]] == ["c", "d"]
    assert all(token in step.texts for step in out.ranked for token, _ in (*step.model, *step.drawn))
    pieces = list(stream(MODEL, "ab", Greedy(), max_new_tokens=2, alternatives=2))
    assert [step.texts for piece in pieces for step in piece.ranked] == [step.texts for step in out.ranked]
    assert generate(bigram([[1.0]]), [0], Greedy(), max_new_tokens=1, alternatives=1).ranked[0].texts == {}


class Hidden(Abilities):
    """A table model that shows hidden vectors."""

    context = tokenizer = None

    def __init__(self, vocab_size):
        self.table, self.vocab_size = random_table(vocab_size, seed=3), vocab_size

    def start(self, prompts):
        return self._shown(*self.table.start(prompts))

    def step(self, state, tokens_N):
        return self._shown(*self.table.step(state, tokens_N))

    def _shown(self, step, state):
        angles_N = torch.tensor([float(sum(row)) for row in state.rows])
        return Step(step.logp_NV, torch.stack((angles_N.cos(), angles_N.sin()), dim=1)), state


class Broken(Hidden):
    """Its weights are no numbers."""

    def _shown(self, step, state):
        step, state = super()._shown(step, state)
        return Step(step.logp_NV * math.nan, step.hidden_ND), state

    @property
    def rewindable(self):
        return self

    def extend(self, state, tokens_NT):
        return self.step(state, tokens_NT[:, -1])

    def rewind(self, state, tokens):
        raise AssertionError("nothing was drafted")


@pytest.mark.parametrize(
    "decoder", [Greedy(), Sample(), Sample(TopP(0.9)), Beam(2), ContrastiveSearch(2), Speculative(Broken(9))]
)
def test_a_model_that_gives_no_numbers_is_refused_by_every_search(decoder):
    with pytest.raises(ValueError, match="NaN"):
        generate(Broken(9), [1], decoder)
    with pytest.raises(ValueError, match="NaN"):
        list(stream(Broken(9), [1], decoder))


def test_a_stream_shows_the_alternatives_of_its_tokens():
    model = random_table(9, seed=0)
    pieces = list(stream(model, [1], Sample(), seed=2, max_new_tokens=4, alternatives=3))
    whole = generate(model, [1], Sample(), seed=2, max_new_tokens=4, alternatives=3)
    assert sum((piece.ranked for piece in pieces), ()) == whole.ranked
    assert sum((piece.logps for piece in pieces), ()) == whole.logps
    assert sum((piece.scores for piece in pieces), ()) == whole.scores
    assert len(whole.ranked) == 4


def test_a_beam_never_gives_one_text_twice():
    found = generate(MODEL, "a", Beam(3), n=3, stop=["b", "c"], max_new_tokens=4)
    assert len({out.text for out in found}) == len(found)


class Full(TableModel):
    """There is no memory for its second step."""

    def __init__(self, error):
        super().__init__(lambda row: [0.5, 0.5])
        self.error = error

    def step(self, state, tokens_N):
        raise self.error


SHORTAGES = [
    MemoryError(),
    np._core._exceptions._ArrayMemoryError((2, 3), np.dtype(np.float32)),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 204800000 bytes"),
    OSError(12, "Cannot allocate memory"),
]


@pytest.mark.parametrize("error", SHORTAGES, ids=lambda it: type(it).__name__)
def test_the_error_of_exhausted_memory_names_a_remedy(error):
    for call in (generate, lambda *args: list(stream(*args))):
        with pytest.raises(
            MemoryError, match=r"out of memory while decoding 1 sequences .* reduce batch_size"
        ) as caught:
            call(Full(error), [1], Greedy())
        assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [MemoryError("keys and values need 9 GB"), RuntimeError("no"), OSError(2, "")]
)
def test_memory_errors_with_a_message_and_other_errors_stay_as_they_are(error):
    with pytest.raises(type(error)) as caught:
        generate(Full(error), [1], Greedy())
    assert caught.value is error


def test_agenerate_returns_the_output_of_generate():
    out = asyncio.run(agenerate(MODEL, "ab", "Greedy()", max_new_tokens=4, seed=1))
    assert out == generate(MODEL, "ab", Greedy(), max_new_tokens=4, seed=1)


def test_a_decoder_may_be_a_string_or_keywords():
    model = bigram([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.2, 0.3]])
    sample = Sample(TopP(0.9))
    expected = generate(model, [0], sample, max_new_tokens=9, seed=3)
    assert generate(model, [0], repr(sample), max_new_tokens=9, seed=3) == expected
    assert generate(model, [0], top_p=0.9, max_new_tokens=9, seed=3) == expected
