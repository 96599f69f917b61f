"""Beam search beside Hugging Face's: the same texts, scores and order, on tiny random models of four kinds."""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
)

from unspool.decode.hypothesis import Job
from unspool.decode.ranking import FirstFull, Heuristic, Length, Proved
from unspool.decode.search.beam import Beam
from unspool.interfaces import Abilities, Step
from unspool.testing import TableState

V, PAD, START, LIMIT, BATCH = 29, 3, 1, 7, 6
STOPS = {True: FirstFull(), False: Heuristic(), "never": Proved()}


@dataclass(frozen=True)
class Decoder(Abilities):
    """A Hugging Face language model, read anew at every step."""

    twin: object
    vocab_size: int = V
    context: None = None
    tokenizer: None = None

    def start(self, prompts):
        return self.read(TableState(tuple(map(tuple, prompts))))

    def step(self, state, tokens_N):
        rows = zip(state.rows, tokens_N.tolist(), strict=True)
        return self.read(TableState(tuple((*row, token) for row, token in rows)))

    @torch.no_grad()
    def read(self, state):
        return Step(self.logits(torch.tensor(state.rows))[:, -1].log_softmax(-1)), state

    def logits(self, rows_NT):
        return self.twin(rows_NT).logits


@dataclass(frozen=True)
class Translator(Decoder):
    """A Hugging Face encoder–decoder: the first `source` tokens of a row are what it translates."""

    source: int = 5

    def logits(self, rows_NT):
        source_NS, target_NT = rows_NT[:, : self.source], rows_NT[:, self.source :]
        start_N1 = torch.full((len(rows_NT), 1), START)
        return self.twin(source_NS, decoder_input_ids=torch.cat([start_N1, target_NT], dim=1)).logits


def gpt2():
    ids = {"bos_token_id": START, "eos_token_id": 2, "pad_token_id": PAD}
    config = GPT2Config(
        vocab_size=V, n_positions=32, n_embd=24, n_layer=2, n_head=2, initializer_range=0.3, **ids
    )
    return Decoder(GPT2LMHeadModel(config).eval())


def llama():
    ids = {"bos_token_id": START, "eos_token_id": 2, "pad_token_id": PAD}
    shape = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = LlamaConfig(
        vocab_size=V, hidden_size=24, intermediate_size=48, initializer_range=0.3, **shape, **ids
    )
    return Decoder(LlamaForCausalLM(config).eval())


def translator(config_type, model_type):
    ids = {"bos_token_id": START, "eos_token_id": 2, "pad_token_id": PAD, "decoder_start_token_id": START}
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SHAPE.items()}
    config = config_type(vocab_size=V, d_model=24, init_std=0.3, forced_eos_token_id=None, **sides, **ids)
    twin = model_type(config).eval()
    # Left alone, a random translator hardly ever ends.
    twin.final_logits_bias[0, [2, 4, 5]] += 2.0
    return Translator(twin)


SHAPE = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
KINDS = {
    "gpt2": gpt2,
    "llama": llama,
    "bart": lambda: translator(BartConfig, BartForConditionalGeneration),
    "marian": lambda: translator(MarianConfig, MarianMTModel),
}


def theirs(model, prompts_BT, width, eos, stopping, alpha):
    out = model.twin.generate(
        prompts_BT,
        attention_mask=torch.ones_like(prompts_BT),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=LIMIT,
        early_stopping=stopping,
        length_penalty=alpha,
        eos_token_id=sorted(eos),
        pad_token_id=PAD,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    skip = 1 if isinstance(model, Translator) else prompts_BT.shape[1]
    return out.sequences[:, skip:].tolist(), out.sequences_scores.tolist()


@pytest.mark.parametrize("stopping", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_scores_and_order(kind, stopping):
    finishes, lengths = set(), set()
    cases = product([0.0, 0.6, 1.0, -0.5, 2.0], [(2, {2}), (4, {2, 4, 5})])
    for seed, (alpha, (width, eos)) in enumerate(cases):
        torch.manual_seed(seed)
        model = KINDS[kind]()
        prompts_BT = torch.randint(6, V, (BATCH, 5))
        sequences, scores = theirs(model, prompts_BT, width, eos, stopping, alpha)
        prompts = tuple(map(tuple, prompts_BT.tolist()))
        job = Job(prompts, (LIMIT,) * BATCH, (0,) * BATCH, width, frozenset(eos))
        beam = Beam(width, length_penalty=Length(alpha), stop=STOPS[stopping])
        ended = [path for frontier in beam(model, job) for path in frontier.ended]
        ended.sort(key=lambda path: (path.request, path.sample))
        padded = [[*path.tokens, *[PAD] * (len(sequences[0]) - len(path.tokens))] for path in ended]
        assert padded == sequences
        assert [path.total for path in ended] == pytest.approx(scores, abs=1e-5)
        finishes.update((path.finish_reason, path.tokens[-1] in eos) for path in ended)
        lengths.update(len(path.tokens) for path in ended)
    assert finishes == {("eos", True), ("length", False)}
    assert len(lengths) > 3
