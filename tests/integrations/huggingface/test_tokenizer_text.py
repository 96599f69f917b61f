import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import unspool as us
from unspool.integrations.huggingface.loading import convert_tokenizer


@pytest.fixture
def tokenizer():
    words = ["<pad>", "<s>", "</s>", "a", "cab", "fade"]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="left"
    )


def test_it_reads_and_writes_as_the_tokenizer_does(tokenizer, llama):
    text = convert_tokenizer(tokenizer, llama)
    assert text.encode("a cab") == [1, 3, 4] == tokenizer("a cab").input_ids[:-1]
    assert text.decode([3, 5, 2]) == tokenizer.decode([3, 5, 2], skip_special_tokens=True)
    assert (text.bos_id, text.eos_ids, text.bos_token, text.eos_token) == (1, {2}, "<s>", "</s>")


def test_the_tokenizer_itself_is_not_changed(tokenizer, llama):
    before = tokenizer.backend_tokenizer.to_str()
    us.generate(us.from_huggingface(llama, tokenizer), ["a cab", "a"], us.Greedy(), max_new_tokens=3)
    assert tokenizer.backend_tokenizer.to_str() == before


def test_a_source_has_the_frame_that_the_tokenizer_gives_it(tokenizer, bart):
    model = us.from_huggingface(bart, tokenizer)
    ids = model.tokenizer.encode("fade a")
    assert model.ends.source(ids) == tokenizer("fade a").input_ids


def test_another_kind_of_tokenizer_is_refused(llama):
    with pytest.raises(TypeError, match="must be one of the tokenizers library"):
        convert_tokenizer(object(), llama)
