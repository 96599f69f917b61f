import json

import pytest


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    dates = {"the 5th of May, 1921": "1921-05-05", "July 4th, 2025": "2025-07-04"}
    path.write_text("".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in dates.items()))
    return path


def test_widths_on_pairs(unspool, pairs, tmp_path):
    argv = ("diagnose", "beams", "dates", "--text", pairs, "--widths", 1, 4)
    status, out, err = unspool(*argv, "-o", tmp_path / "b.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'b.svg'}\n")
    assert out.startswith(f"beams on {pairs}, 2 texts\n")
    assert out.splitlines()[-1].startswith("from width 1 to 4 texts go from 10.0 to 10.0 tokens")
    found = json.loads(unspool(*argv, "--json", "--beam", "Beam(1, length_penalty=GNMT(0.6))")[1])
    assert [it["width"] for it in found["points"]] == [1, 4]
    assert found["points"][0]["quality"] == 1


def test_only_a_beam_is_made_wider(unspool, pairs):
    status, _, err = unspool("diagnose", "beams", "dates", "--text", pairs, "--beam", "Greedy()")
    assert status == 2
    assert "--beam Greedy() is no Beam" in err
