import json


def test_a_table_a_verdict_and_json(unspool, loaded, tmp_path):
    (tmp_path / "t.txt").write_text("abcabcaabbccacb" * 6)
    argv = ("diagnose", "calibration", "tiny", "--text", tmp_path / "t.txt", "--prompt", 1, "--length", 100)
    status, out, err = unspool(*argv, "-o", tmp_path / "p.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'p.svg'}\n")
    assert out.startswith(f"the most probable token, on {tmp_path / 't.txt'}, 89 places\n")
    assert out.splitlines()[-1].startswith("ECE 0.")
    found = json.loads(unspool(*argv, "--json", "--bins", 5)[1])
    assert (found["count"], len(found["bins"])) == (89, 5)
    assert "confident" in found["verdict"] or "calibrated" in found["verdict"]
