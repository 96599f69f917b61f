import pytest
import torch
from transformers import LlamaForCausalLM

from unspool.decode.hypothesis import Job
from unspool.decode.search import Greedy
from unspool.heads import (
    BilinearHeadConfig,
    KerbsHeadConfig,
    MixtureHeadConfig,
    SigsoftmaxHeadConfig,
    SoftmaxHeadConfig,
    TemperedHeadConfig,
)
from unspool.integrations.huggingface.loading import to_huggingface
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.nn.positions import RotaryScaling

LLAMA = TransformerConfig(
    vocab_size=61,
    width=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_width=16,
    inner_width=48,
    context=64,
    norm_eps=1e-6,
)
GPT2 = TransformerConfig(
    vocab_size=61,
    width=32,
    layers=2,
    heads=4,
    inner_width=128,
    context=64,
    norm="layer",
    positions="learned",
    activation="gelu_tanh",
    bias=True,
)


def change(config, **fields):
    return TransformerConfig(**{**vars(config), **fields})


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        change(LLAMA, tied=False, bias=True),
        change(LLAMA, rotary_scaling=RotaryScaling(4.0, 1.0, 4.0, 16), rotary_base=500.0),
        GPT2,
        change(GPT2, tied=False),
        change(LLAMA, head=SoftmaxHeadConfig(tied=True)),
        change(LLAMA, head=SoftmaxHeadConfig(tied=False), tied=False),
        change(LLAMA, head=TemperedHeadConfig(learnt=True)),
        change(GPT2, head=TemperedHeadConfig(tied=True)),
        change(LLAMA, head=BilinearHeadConfig(inner_width=7)),
        change(GPT2, head=BilinearHeadConfig(tied=True)),
    ],
    ids=repr,
)
def test_export_gives_the_same_log_probabilities(config):
    torch.manual_seed(0)
    model = TransformerLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.dim() else 2.0, std=0.3)
    tokens = torch.randint(0, 61, (3, 40))
    with torch.no_grad():
        want = to_huggingface(model)(tokens).logits.log_softmax(-1)
        torch.testing.assert_close(model(tokens), want, atol=1e-4, rtol=1e-4)
        assert want.std() > 0.1  # the comparison is of something


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (change(LLAMA, norm_place="post"), "norm_place='post'"),
        (change(LLAMA, activation="relu"), "activation='relu'"),
        (change(LLAMA, qk_norm="head"), "qk_norm='head' .*cannot be exported"),
        (change(LLAMA, embed_scale=2.0), "embed_scale=2.0 .*cannot be exported"),
        (
            change(LLAMA, windowed_layers=(0,), window=4),
            r"windowed_layers=\(0,\) \(MistralForCausalLM has \(0, 1",
        ),
        (change(LLAMA, qkv_bias=True), "qkv_bias=True"),
        (change(GPT2, bias=False), "bias=False"),
        (
            change(LLAMA, head=KerbsHeadConfig(senses=2)),
            "a Kerbs head cannot be exported",
        ),
        (change(GPT2, head=MixtureHeadConfig()), "a Mixture head"),
        (change(LLAMA, head=SigsoftmaxHeadConfig(tied=True)), "a Sigsoftmax head"),
        (change(LLAMA, head=SoftmaxHeadConfig(bias=True), tied=False), "a Softmax head with a bias"),
        (change(GPT2, head=SoftmaxHeadConfig(tied=True, bias=True)), "a TiedSoftmax head with a bias"),
        (change(LLAMA, head=TemperedHeadConfig(bias=True)), "a Tempered head with a bias"),
    ],
    ids=str,
)
def test_unsupported_exports_are_rejected(config, message):
    with pytest.raises(ValueError, match=message):
        to_huggingface(TransformerLM(config))


def test_exports_of_other_models_are_rejected():
    with pytest.raises(TypeError, match="cannot export a RNNLM"):
        to_huggingface(RNNConfig(vocab_size=9, width=4).build())


class Text:
    def __init__(self, bos_id, *eos_ids):
        self.bos_id, self.eos_ids, self.vocab_size = bos_id, frozenset(eos_ids), 61

    encode = decode = detokenizer = None  # nothing is said


@pytest.mark.parametrize(
    ("text", "bos", "eos"),
    [(Text(7, 9), 7, 9), (Text(None, 5, 3), None, [3, 5]), (Text(4), 4, None), (None, None, None)],
)
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_export_keeps_bos_and_eos(config, text, bos, eos, tmp_path):
    twin = to_huggingface(TransformerLM(config, text))
    twin.save_pretrained(tmp_path)
    for result in (twin, type(twin).from_pretrained(tmp_path)):
        for settings in (result.config, result.generation_config):
            assert (settings.bos_token_id, settings.eos_token_id) == (bos, eos)


def test_export_gives_the_same_greedy_text(tmp_path):
    torch.manual_seed(0)
    model = TransformerLM(change(LLAMA, tied=False), Text(0, 17)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    to_huggingface(model).save_pretrained(tmp_path)
    twin = LlamaForCausalLM.from_pretrained(tmp_path)
    for prompt in ([3, 4, 5], [9], [30, 2]):
        job = Job((tuple(prompt),), (40,), (0,), 1, model.tokenizer.eos_ids)
        (path,) = [path for frontier in Greedy()(model, job) for path in frontier.ended]
        outputs = twin.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False, pad_token_id=0)
        assert outputs[0, len(prompt) :].tolist() == list(path.tokens)


def test_export_keeps_the_dtype():
    twin = to_huggingface(TransformerLM(LLAMA).to(torch.bfloat16))
    assert {parameter.dtype for parameter in twin.parameters()} == {torch.bfloat16}
