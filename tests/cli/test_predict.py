import json
import shutil

import pytest
import torch

import unspool as us
from unspool.models.loading.run_folder import save
from unspool.tokenization import train_bpe, train_words

LINES = ["good soup and good bread", "the bad cheese was sour"]


@pytest.fixture
def classifier(tmp_path):
    return saved(
        us.models.ClassifierConfig, ("bad", "fine", "good"), train_words(LINES), tmp_path / "classifier"
    )


@pytest.fixture
def tagger(tmp_path):
    return saved(us.models.TaggerConfig, ("ADJ", "NOUN"), train_bpe(LINES, 264), tmp_path / "tagger")


def saved(config, labels, text, folder):
    """A random model of that kind, and where it is."""
    from unspool.models.encoders import RNNEncoderConfig

    torch.manual_seed(0)
    encoder = RNNEncoderConfig(width=8)
    model = config(vocab_size=text.vocab_size, labels=labels, encoder=encoder).build(text).eval()
    save(model, folder)
    return us.load(folder), folder


def test_a_classifier_answers_with_a_line_for_each_text(unspool, classifier):
    model, run = classifier
    status, out, err = unspool("predict", "--model", run, *LINES, "good  \n soup")
    assert (status, err) == (0, "")
    want = [
        f"{it.label}\t{it.p:.3f}\t{text}"
        for it, text in zip(us.predict(model, [*LINES, "good soup"]), [*LINES, "good soup"], strict=True)
    ]
    assert out.splitlines() == want


def test_a_tagger_answers_with_a_line_for_each_word(unspool, tagger):
    model, run = tagger
    status, out, err = unspool("predict", "--model", run, "good soup", "sour cheese was bad")
    assert (status, err) == (0, "")
    first, second = us.predict(model, ["good soup", "sour cheese was bad"])
    lines = [[f"{it.word}\t{it.label}\t{it.p:.3f}" for it in found] for found in (first, second)]
    assert out.splitlines() == [*lines[0], "", *lines[1]]
    assert [line.split("\t")[0] for line in out.splitlines() if line] == [
        *("good", "soup", "sour", "cheese", "was", "bad"),
    ]


def test_the_most_probable_labels(unspool, classifier):
    model, run = classifier
    found = us.predict(model, LINES[0]).probabilities
    want = [column for label, p in found.items() for column in (label, f"{p:.3f}")]
    assert unspool("predict", "--model", run, LINES[0], "--top", "2")[1].split("\t")[:-1] == want[:4]
    assert unspool("predict", "--model", run, LINES[0], "--top", "9")[1].split("\t")[:-1] == want


def test_json_has_every_probability(unspool, classifier, tagger):
    model, run = classifier
    (record,) = map(json.loads, unspool("predict", "--model", run, LINES[0], "--json")[1].splitlines())
    found = us.predict(model, LINES[0])
    assert record == {
        "text": LINES[0],
        "label": found.label,
        "p": found.p,
        "probabilities": found.probabilities,
    }
    model, run = tagger
    (record,) = map(
        json.loads, unspool("predict", "--model", run, "good soup", "--json", "--top", "1")[1].splitlines()
    )
    assert record == {
        "text": "good soup",
        "words": [
            {"word": it.word, "label": it.label, "p": it.p, "probabilities": {it.label: it.p}}
            for it in us.predict(model, "good soup")
        ],
    }


@pytest.mark.parametrize("name", ["texts.txt", "texts.jsonl"])
def test_texts_come_from_files_and_go_to_files(unspool, classifier, tmp_path, name):
    _, run = classifier
    path, out = tmp_path / name, tmp_path / "out.tsv"
    lines = [json.dumps({"text": it, "id": 1}) for it in LINES] if name.endswith("l") else LINES
    path.write_text("\n\n".join(lines) + "\r\n", encoding="utf-8")
    assert unspool("predict", "--model", run, "--text", path, "--output", out) == (0, "", "")
    assert [line.split("\t")[2] for line in out.read_text().splitlines()] == LINES


@pytest.mark.parametrize("dash", [(), ("-",)])
def test_texts_come_from_standard_input_line_by_line(unspool, piped, classifier, dash):
    _, run = classifier
    piped("\ufeffgood soup\r\n\nsour bread".encode())
    status, out, _ = unspool("predict", "--model", run, *dash)
    assert status == 0
    assert [line.split("\t")[2] for line in out.splitlines()] == ["good soup", "sour bread"]


def test_many_texts_are_labelled_some_at_a_time(unspool, classifier, monkeypatch, tmp_path):
    _, run = classifier
    monkeypatch.setattr("unspool.cli.predict.CHUNK", 3)
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"good {'soup ' * (n % 5)}{n}\n" for n in range(20)))
    out = unspool("predict", "--model", run, "--text", path)[1]
    assert [int(line.split()[-1]) for line in out.splitlines()] == list(range(20))


def test_a_terminal_obeys_no_text(terminal, classifier, unspool):
    _, run = classifier
    screen = terminal()
    assert unspool("predict", "--model", run, "good \x1b[31m soup")[0] == 0
    assert "\x1b" not in screen.getvalue()
    assert "good �[31m soup" in screen.getvalue()


def test_a_text_that_cannot_be_labelled_is_refused(unspool, piped, classifier, tmp_path):
    _, run = classifier
    path = tmp_path / "texts.txt"
    path.write_text(" \n")
    argv = ("predict", "--model", run)
    piped(b"\n")
    assert (
        unspool(*argv)[2] == "unspool: standard input is empty: pipe lines into the command, or give TEXT\n"
    )
    piped(b"\xff")
    assert "standard input is not UTF-8" in unspool(*argv)[2]
    assert unspool(*argv, "--text", path)[2] == f"unspool: {path}: the file does not contain a text\n"
    assert unspool(*argv, "good", " ")[2] == "unspool: text 2: the text is empty: there is nothing to label\n"
    assert unspool(*argv, "good", "--text", path)[2] == "unspool: give TEXT or --text FILE, not both\n"
    path.write_text("good soup\n")
    status, out, err = unspool(*argv, "--text", path, "--output", path)
    assert (status, out) == (2, "")
    assert "would overwrite the input" in err
    assert path.read_text() == "good soup\n"


def test_a_line_that_is_too_long_is_named(unspool, tmp_path):
    from unspool.models.encoders import TransformerEncoderConfig

    encoder = TransformerEncoderConfig(
        width=4, heads=2, inner_width=4, layers=1, positions="learned", context=3
    )
    text = train_words(LINES)
    save(
        us.models.ClassifierConfig(vocab_size=text.vocab_size, labels=("a", "b"), encoder=encoder).build(
            text
        ),
        tmp_path / "run",
    )
    path = tmp_path / "texts.txt"
    path.write_text("good soup\n\ngood soup and bread\n")
    status, out, err = unspool("predict", "--model", tmp_path / "run", "--text", path)
    assert (status, out) == (2, "")
    assert err == f"unspool: {path}:3: the text has 4 tokens, and the model reads at most 3: shorten it\n"


def test_a_model_that_says_text_is_refused(unspool, loaded):
    status, out, err = unspool("predict", "--model", "tiny", "abc")
    assert (status, out) == (2, "")
    assert "tiny generates text and does not label it" in err
    assert 'unspool generate --model tiny "…"' in err


def test_nothing_to_read_from_a_terminal(unspool, monkeypatch, classifier):
    _, run = classifier
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert "no text: give TEXT" in unspool("predict", "--model", run)[2]


def test_a_place_that_cannot_be_written_to_is_said_before_the_work(
    unspool, classifier, monkeypatch, tmp_path
):
    _, run = classifier
    monkeypatch.setattr(us, "load", lambda *args, **options: pytest.fail("work was done"))
    status, _, err = unspool("predict", "--model", run, "good", "--output", tmp_path / "no" / "out.tsv")
    assert status == 2
    assert "out.tsv" in err


def test_of_labelled_lines_the_text_is_labelled(unspool, classifier, tmp_path):
    _, run = classifier
    (tmp_path / "labelled.tsv").write_text("".join(f"good\t{line}\n" for line in LINES))
    status, _, err = unspool("predict", "--model", run, "--text", tmp_path / "labelled.tsv")
    assert status == 2
    assert "labelled.tsv:1: this is a pair, but a text is expected" in err
    shutil.copy("recipes/tiny/classifier.toml", run / "recipe.toml")
    status, out, err = unspool("predict", "--model", run, "--text", tmp_path / "labelled.tsv")
    assert status == 0, err
    assert [line.split("\t")[-1] for line in out.splitlines()] == LINES
