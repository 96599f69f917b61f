import pytest

from unspool.data.conllu import TreeWord, read_treebank

PREFER = """# sent_id = 1
# text = I prefer flights, don't I?
1\tI\ti\tPRON\t_\t_\t2\tnsubj\t_\t_
2\tprefer\tprefer\tVERB\t_\t_\t0\troot\t_\t_
3\tflights\tflight\tNOUN\t_\t_\t2\tobj\t_\tSpaceAfter=No
4\t,\t,\tPUNCT\t_\t_\t2\tpunct\t_\t_
5-6\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
5\tdo\tdo\tAUX\t_\t_\t2\taux\t_\t_
6\tn't\tnot\tPART\t_\t_\t5\tadvmod\t_\t_
6.1\tprefer\tprefer\tVERB\t_\t_\t_\t_\t_\t_
7\tI\ti\tPRON\t_\t_\t2\tnsubj\t_\tSpaceAfter=No
8\t?\t?\tPUNCT\t_\t_\t2\tpunct\t_\t_
"""


@pytest.fixture
def bank(tmp_path):
    def make(content):
        (tmp_path / "bank.conllu").write_text(content, encoding="utf-8")
        return tmp_path / "bank.conllu"

    return make


def test_words_have_their_places_and_heads(bank):
    (found,) = read_treebank(bank(PREFER))
    assert found.words[0] == TreeWord("I", 0, 1, 1, "nsubj")
    assert found.words[1].head is None
    assert [found.text[it.begin : it.end] for it in found.words] == [
        *("I", "prefer", "flights", ",", "do", "n't", "I", "?")
    ]


def test_parts_that_do_not_add_up_share_what_is_written(bank):
    french = (
        "# text = au lit\n1-2\tau\t_\t_\t_\t_\t_\t_\t_\t_\n1\tà\t_\tADP\t_\t_\t3\tcase\t_\t_\n"
        "2\tle\t_\tDET\t_\t_\t3\tdet\t_\t_\n3\tlit\t_\tNOUN\t_\t_\t0\troot\t_\t_\n"
    )
    (found,) = read_treebank(bank(french))
    assert [(it.begin, it.end) for it in found.words] == [(0, 2), (0, 2), (3, 6)]


def test_several_sentences(bank):
    assert len(read_treebank(bank(PREFER + "\n" + PREFER + "\n\n"))) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no sentence"),
        (
            PREFER.replace("2\tprefer", "2\tprefers"),
            "line 4: the word 'prefers' is not in the sentence's text",
        ),
        (
            PREFER.replace("don't I?", "don't I? No"),
            "line 12: the words end before the text at ' No'",
        ),
        (PREFER.replace("# text =", "# words ="), "line 1: the sentence has no"),
        (PREFER.replace("\tnsubj\t_\t_\n", "\tnsubj\n", 1), "line 3: 8 columns"),
        (PREFER.replace("2\tobj", "9\tobj"), "line 5: word 3 depends on 9, but words are 1 to 8"),
        (PREFER.replace("2\tobj", "3\tobj"), "line 5: word 3 depends on 3, .* none depends on itself"),
    ],
)
def test_errors_name_their_line(bank, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_treebank(bank(content))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="treebank"):
        read_treebank(tmp_path / "none.conllu")
    (tmp_path / "bad.conllu").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_treebank(tmp_path / "bad.conllu")
