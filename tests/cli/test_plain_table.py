from unspool.cli.output import print_rows


def test_cells_stand_under_their_names(capsys):
    print_rows(["system", "n"], [["ours", "3"], ["th\x1beirs", "14"]])
    head, _, first, second = capsys.readouterr().out.strip().splitlines()[:4]
    assert head.split() == ["system", "n"]
    assert first.split() == ["ours", "3"]
    assert second.split() == ["th�eirs", "14"]
    assert first.rstrip().endswith(" 3")


def test_nothing_is_cut(capsys):
    print_rows(["x" * 30] * 2, [["y" * 150, "[bold]z"]])
    out = capsys.readouterr().out
    assert out.count("y") == 150
    assert "[bold]z" in out
