import json


def test_a_language_model_in_words_and_drawn(unspool, tmp_path):
    argv = ("diagnose", "attention", "bible", "In the beginning God created")
    status, out, err = unspool(*argv, "-o", tmp_path / "a.png", "--layer", 1, "--head", 0)
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'a.png'}\n")
    assert "heads look: " in out.splitlines()[-1]
    found = json.loads(unspool(*argv, "--json")[1])
    assert len(found["maps"][0]["weights"]) == len(found["tokens"])


def test_an_answer_and_its_source(unspool):
    status, out, _ = unspool(
        "diagnose", "attention", "dates", "1921-05-05", "--source", "the 5th of May, 1921"
    )
    assert status == 0
    assert "of its attention" in out


def test_what_has_none(unspool, loaded, narrow):
    status, _, err = unspool("diagnose", "attention", "tiny", "abcabc")
    assert status == 2
    assert "has no attention" in err
