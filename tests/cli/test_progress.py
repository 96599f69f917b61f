from unspool.cli.output import counted


def count(shown):
    with counted(5, shown=shown) as done:
        for _ in range(5):
            done()


def test_a_bar_on_a_terminal(terminal):
    screen = terminal("stderr")
    count(shown=True)
    assert "5/5" in screen.getvalue()


def test_nothing_where_there_is_no_terminal_or_nothing_to_get_through(terminal, capsys):
    count(shown=True)
    assert capsys.readouterr().err == ""
    screen = terminal("stderr")
    count(shown=False)
    assert screen.getvalue() == ""
