import re
from html.parser import HTMLParser
from math import inf

import pytest

from unspool.decode.output import Output
from unspool.evaluate.comparison import DecoderRow, html_report


def output(text, tokens, logps, finish_reason="length"):
    return Output(text, tokens, logps, logps, finish_reason, seed=0)


def row(name, *texts, logp=-1.0):
    outputs = tuple(output(t, tuple(map(ord, t)), (logp,) * len(t)) for t in texts)
    return DecoderRow(name, f"{name}()", outputs, seconds=1.0)


class Tags(HTMLParser):
    """Fails where an element is closed that is not the open one."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def named(self, name):
        return [attributes for tag, attributes in self.seen if tag == name]


@pytest.fixture
def page():
    rows = [row("Greedy", "ababababab", "xyz"), row("Sample", "abcdefg", "uvw", logp=-3.0)]
    return html_report(rows, ["first", "second"], {"model": "tiny", "seed": 7})


def test_the_page_is_well_formed(page):
    assert Tags(page).open == []


def test_nothing_is_fetched_and_nothing_runs(page):
    tags = Tags(page)
    assert not {tag for tag, _ in tags.seen} & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import|\ssrc=|\son\w+=", page)
    assert "default-src 'none'" in page


def test_every_decoder_and_prompt_has_its_panel(page):
    tags = Tags(page)
    assert len(tags.named("article")) == 4
    assert len(tags.named("polyline")) == 4
    assert "2 decoders, 2 prompts" in page
    assert "loop of 2" in page
    assert all(word in page for word in ("first", "second", "tiny", "Greedy", "ababababab"))


def test_plots_share_their_scale():
    page = html_report([row("A", "abcd", logp=-1.0), row("B", "abcd", logp=-4.0)], ["p"], {})
    heights = [
        {float(point.split(",")[1]) for point in line["points"].split()}
        for line in Tags(page).named("polyline")
    ]
    assert heights == [{6 + 70 / 4}, {6 + 70.0}]


def test_an_impossible_token_is_drawn_at_the_bottom():
    impossible = DecoderRow("A", "A()", (output("ab", (1, 2), (-2.0, -inf)),), 1.0)
    points = Tags(html_report([impossible], ["p"], {})).named("polyline")[0]["points"].split()
    assert [float(point.split(",")[1]) for point in points] == [76] * 4


def test_an_empty_text_has_a_panel_too():
    page = html_report([DecoderRow("A", "A()", (output("", (), (), "eos"),), 1.0)], ["p"], {})
    assert Tags(page).open == []
    assert "0 tokens" in page


def test_one_token_is_a_line_too():
    page = html_report([row("A", "x", logp=-2.0), row("B", "xy", logp=-4.0)], ["p"], {})
    one, two = (line["points"].split() for line in Tags(page).named("polyline"))
    assert [point.split(",")[1] for point in one] == ["41.0"] * 2  # 6 + 70 / 2
    assert len(two) == 4


def test_an_empty_answer_has_no_curve():
    page = html_report([DecoderRow("A", "A()", (output("", (), (), "eos"),), 1.0)], ["p"], {})
    assert "nan" not in re.sub(r"<td>nan</td>", "", page)
    assert Tags(page).named("svg") == []


def test_many_prompts_have_an_index(page):
    tags = Tags(page)
    links = [it["href"] for it in tags.named("a")]
    assert links == ["#prompt-1", "#prompt-2", "#prompts", "#prompts"]
    assert {it["id"] for it in tags.named("h2") if "id" in it} == {"prompt-1", "prompt-2"}
    assert [it["id"] for it in tags.named("nav")] == ["prompts"]
    assert Tags(html_report([row("A", "x")], ["p"], {})).named("nav") == []


def test_every_text_has_the_direction_of_its_script(page):
    tags = Tags(page)
    assert {it.get("dir") for it in tags.named("blockquote")} == {"auto"}
    assert [it.get("dir") for it in tags.named("p")].count("auto") == 4
    assert {it.get("dir") for it in tags.named("a") if it["href"] != "#prompts"} == {"auto"}


def test_no_text_is_wider_than_the_page():
    assert "overflow-wrap: anywhere" in html_report([row("A", "x" * 500)], ["y" * 500], {})


def test_markup_in_texts_is_escaped():
    page = html_report([row("A\x1b", "a\u202eb\x00c")], ["\u2066p"], {})
    assert not set(page) & {"\x1b", "\u202e", "\x00", "\u2066"}
    assert "a�b�c" in page


def test_decoders_that_failed_are_named():
    page = html_report([row("A", "x")], ["p"], {}, {"B()": "it has no <matrix>"})
    assert "<code>B()</code>: it has no &lt;matrix&gt;" in page
    assert Tags(page).open == []
    assert "Not compared" not in html_report([row("A", "x")], ["p"], {})


def test_texts_cannot_become_markup():
    evil = '<script>alert(1)</script>&"'
    page = html_report([row(evil, evil)], [evil], {evil: evil})
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5
