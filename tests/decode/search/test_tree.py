from unspool.decode.search.beam_state import Node, Tree


def test_every_node_tells_its_fate():
    tree = Tree()
    a = tree.add(-1, 5, -0.1, -0.1, None)
    b = tree.add(-1, 6, -0.2, -0.2, None)
    c = tree.add(a, 7, -0.3, -0.4, None)
    d = tree.add(a, 0, -0.4, -0.5, "eos")
    assert (a, b, c, d) == (0, 1, 2, 3)
    assert tree.nodes(alive=[c]) == (
        Node(-1, 5, -0.1, -0.1, "grown"),
        Node(-1, 6, -0.2, -0.2, "dropped"),
        Node(0, 7, -0.3, -0.4, "open"),
        Node(0, 0, -0.4, -0.5, "eos"),
    )


def test_without_survivors_what_was_not_continued_was_dropped():
    tree = Tree()
    tree.add(-1, 5, -0.1, -0.1, None)
    assert [node.status for node in tree.nodes()] == ["dropped"]
