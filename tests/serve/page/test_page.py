"""Every view of the page, in a browser: what it shows is what the library says, and its code does the same."""

import json
import random
import re
import shutil
import subprocess
from contextlib import redirect_stdout
from io import StringIO

import pytest

import unspool as us
from unspool.diagnose.decoding_views import attention_map, beam_tree, next_token
from unspool.evaluate.rating import prepare, report
from unspool.serve.page.routes import PageContent

PROMPT = "And God said unto Moses,"
LOOPING = "The king"
"""What greedy search goes on from in a loop."""
HOSTILE = (
    """'; "quoted" $(touch stolen) `x` \\ <script>alert(1)</script>&#x3c;img src=x onerror=alert(2)> é 🙂"""
)
FRESH = ".view[data-answer=fresh]"
VIEWS = ("next-token", "side-by-side", "beam-tree", "attention")


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def visible(text):
    """As the page shows a token."""
    return re.sub("^ ", "·", text).replace("\n", "↵").replace("\t", "⇥") or "∅"


def until(page, script, arg=None):
    """Wait until it is so. (Playwright's own way to wait for a script is what the page's policy forbids.)"""
    for _ in range(600):
        if page.evaluate(script, arg):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never came true: {script}")


def copied(page, button):
    page.click(button)
    until(page, "button => document.querySelector(button).textContent === 'Copied'", button)
    return page.evaluate("navigator.clipboard.readText()")


def run_python(code):
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(code, "copied", "exec"), {"__name__": "copied"})
    return out.getvalue()


def run_curl(command, folder, leaves=frozenset(), **environment):
    if shutil.which("curl") is None:
        pytest.fail("there is no curl to try the code with: install it")
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == leaves
    return done.stdout


# Next token


def rows(page):
    return [[cell.strip() for cell in row.split("\t")] for row in texts(page, ".tokens tbody tr")]


def statuses(page, place):
    """What the column of a decoder says of every token."""
    return texts(page, f".tokens tbody td:nth-of-type({place + 2}) .spoken")


def test_the_distribution_and_what_survives(tab, models):
    decoders = ["Sample(TopK(3))", "Sample(BasisAware(0.1))", "Beam(2)"]
    page = tab.open("next-token", model="bible", prompt=PROMPT, decoder=decoders)
    page.wait_for_selector(".tokens tbody tr")
    seen = next_token(models["bible"], PROMPT, (), [us.parse(each) for each in decoders])
    assert texts(page, "button.token") == [visible(token.text) for token in seen.tokens]
    assert page.inner_text("#entropy") == f"{seen.entropy:.2f} bits"
    meaning = {"kept": "kept", "proved": "kept below the threshold, by a proof", "cut": "cut"}
    for place in (0, 1):
        assert statuses(page, place) == [meaning[status] for status in seen.decoders[place].statuses]
    assert page.locator("td.proved").count() == seen.decoders[1].statuses.count("proved") > 0
    notes = texts(page, ".editor .note")
    assert notes[0].startswith("keeps 3 tokens")
    assert "does not choose token by token" in notes[2]


def test_a_slider_acts_at_once_and_is_written_into_the_address(tab):
    page = tab.open("next-token", prompt=PROMPT, decoder="Sample(TopK(3))")
    page.wait_for_selector("td.kept")
    page.get_by_label("TopK").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    until(page, "document.querySelectorAll('td.kept').length === 7")
    assert page.input_value("input.decoder") == "Sample(TopK(7))"
    assert "TopK%287%29" in page.url


def test_a_token_is_chosen_and_taken_back_by_the_keyboard(tab, models):
    page = tab.open("next-token", prompt=PROMPT)
    page.wait_for_selector("button.token")
    before = rows(page)
    page.locator("button.token").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chosen")
    second = next_token(models["bible"], PROMPT).tokens[1]
    assert texts(page, ".chosen") == [visible(second.text)]
    after = next_token(models["bible"], PROMPT, [second.id]).tokens
    until(
        page,
        "shown => document.querySelector('button.token').textContent === shown",
        arg=visible(after[0].text),
    )
    assert f"token={second.id}" in page.url
    page.click("#step-back")
    page.wait_for_selector("#step-back", state="hidden")
    page.wait_for_selector(FRESH)
    assert rows(page) == before


def test_a_prompt_is_read_as_it_is_typed(tab, models):
    page = tab.open("next-token", prompt=PROMPT)
    page.wait_for_selector("button.token")
    page.fill("#prompt", "In the beginning")
    first = visible(next_token(models["bible"], "In the beginning").tokens[0].text)
    until(page, "shown => document.querySelector('button.token').textContent === shown", arg=first)


# Side by side


def test_decoders_stream_side_by_side(tab, models):
    decoders = ["Greedy()", "Sample(TopP(0.9))", "Beam(2)", "Sample(TopP(9))"]
    page = tab.open("side-by-side", prompt=LOOPING, decoder=decoders, tokens=40, seed=3)
    until(page, "document.querySelectorAll('.card[aria-busy=false]').length === 4")
    outs = [
        us.generate(models["bible"], LOOPING, us.parse(decoder), max_new_tokens=40, seed=3)
        for decoder in decoders[:3]
    ]
    assert page.locator(".card .text").all_text_contents()[:3] == [out.text for out in outs]
    loop = us.find_loop(outs[0].tokens)
    facts = texts(page, ".card:first-child dd")
    assert (facts[0], facts[5]) == ("40", f"of {loop.period} from token {loop.start + 1}")
    assert float(facts[2]) == pytest.approx(sum(outs[0].logps) / 40, abs=0.006)
    assert page.locator(".card:first-child .loop").count() == 40 - loop.start
    assert "TopP.p is 9" in page.inner_text(".card:nth-child(4) [role=alert]")
    tab.wrong = [each for each in tab.wrong if "400" not in each]  # chromium tells of every refusal


def test_loops_and_repeats_are_the_librarys(tab):
    page = tab.open("side-by-side", prompt=PROMPT, decoder="Greedy()", tokens=10)
    die = random.Random(1)
    rows = [[die.randrange(3) for _ in range(die.randrange(30))] for _ in range(200)]
    rows += [row + row[-4:] * 3 for row in rows[:50]]
    found = page.evaluate(
        "async (rows) => { const {findLoop} = await import('/playground/repeats.js'); return rows.map((row) => findLoop(row)); }",
        rows,
    )
    for row, loop in zip(rows, found, strict=True):
        known = us.find_loop(row)
        assert loop == (None if known is None else {"start": known.start, "period": known.period})
    marks = page.evaluate(
        "async () => (await import('/playground/repeats.js')).repeated([1,2,3,4,5,1,2,3,4,1,2])"
    )
    assert [place for place, mark in enumerate(marks) if mark] == [5, 6, 7, 8]


def test_every_decoder_of_the_menus_can_be_read(tab):
    page = tab.open("beam-tree", prompt=PROMPT, tokens=2)
    for decoder in page.evaluate("async () => (await import('/playground/decoders.js')).ALL"):
        us.parse(decoder)
    numbers = page.evaluate(
        """async () => (await import('/playground/decoders.js')).numbers('Beam(4, BadWords(["a(1)"]), length_penalty=GNMT(0.6))')
        .map(({value, owner, argument}) => [value, owner, argument])"""
    )
    assert numbers == [[4, "Beam", None], [0.6, "GNMT", None]]


# Beam tree


def test_a_beam_is_drawn(tab, models):
    search = us.Beam(3, length_penalty=us.GNMT(0.6))
    page = tab.open("beam-tree", prompt=PROMPT, decoder=repr(search), tokens=6)
    page.wait_for_selector(".tree g.node")
    tree = beam_tree(models["bible"], PROMPT, search, 6)
    assert page.locator(".tree g.node").count() == len(tree.nodes)
    assert page.locator(".tree g.dropped").count() == [node.status for node in tree.nodes].count("dropped")
    assert page.locator(".found .text").all_text_contents() == [text.text or "(empty)" for text in tree.texts]
    page.locator(".tree g.best").last.focus()
    said = page.inner_text("section[aria-label=Tree] .about")
    assert f"sum {tree.nodes[tree.texts[0].node].score:.2f}" in said
    page.get_by_role("slider", name="Beam").fill("5")
    until(page, "document.querySelectorAll('.found li').length === 5")
    page.fill("input.decoder", "Greedy()")
    page.keyboard.press("Enter")
    page.wait_for_selector(".note.wrong")
    assert "is not a beam search" in page.inner_text(".editor .note")
    tab.wrong = [each for each in tab.wrong if "400" not in each]


# Attention


def test_heads_of_a_language_model(tab, models):
    page = tab.open("attention", prompt="And God said", tokens=4, layer=2, head=1)
    page.wait_for_selector(".head")
    seen = attention_map(models["bible"], "And God said", us.Greedy(), 4, layer=2)
    assert page.locator(".head").count() == seen.heads
    assert page.inner_text("section[aria-label=Map] h2") == "Layer 3, head 2"
    assert texts(page, ".strip button") == [visible(text) for text in seen.queries]
    page.locator(".strip button").nth(3).click()
    weights = [
        float(each)
        for each in page.eval_on_selector_all(
            ".lit", "all => all.map((each) => each.style.getPropertyValue('--weight'))"
        )
    ]
    assert weights == seen.weights[1][3]
    page.locator(".head").nth(2).click()
    assert "head=2" in page.url
    page.locator("canvas.map").hover(position={"x": 120, "y": 120})
    assert " attends to " in page.inner_text("section[aria-label=Map] .about")


def test_a_translator_looks_at_its_source(tab):
    page = tab.open("attention", model="dates", prompt="May 5th, 1921", tokens=12)
    page.wait_for_selector(".head")
    assert "".join(texts(page, ".lit")) == "May·5th,·1921<eos>"
    page.select_option("select:near(:text('Attention of'))", "encoder")
    until(page, "document.querySelectorAll('.strip button').length === 14")


# Rate and Lab


@pytest.mark.parametrize(("scale", "key"), [("score", "2"), ("preference", "a")])
def test_texts_are_rated_by_keys_and_by_clicks(tabs, serving, tmp_path, scale, key):
    systems = {"one": ["<b>Fine.</b>", "A cat."], "other": ["Well.", "cat cat"]}
    ratings = prepare(tmp_path / "set", systems, ["How are you?", "What is it?"], scale=scale)
    with serving({}, (), PageContent(ratings)) as url:
        tab = tabs(url, viewport={"width": 390, "height": 844})
        page = tab.open("rate", rater="anna")
        page.wait_for_selector(".choices button")
        assert texts(page, "nav a")[-1] == "Rate"
        assert page.locator(".item .card").count() == ratings.scale.texts
        assert page.locator(".item b").count() == 0
        for answered in range(len(ratings.items)):
            if answered % 2:
                page.click(f".choices button[value='{key}']")
            else:
                page.keyboard.press(key)
            page.wait_for_selector(f"text={answered + 1} of {len(ratings.items)} answered")
        assert [(it.rater, it.choice) for it in ratings.answers()] == [("anna", key)] * len(ratings.items)
        page.click("#results")
        page.wait_for_selector(".results table")
        found = report(ratings)
        assert texts(page, ".results tbody th") == [each.system for each in found.systems]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert found.systems[0].system in run_python(copied(page, "#copy-python"))
        told = run_curl(copied(page, "#copy-curl"), tmp_path, leaves={"set", "set-key.json"})
        assert json.loads(told)["answers"] == len(ratings.items)
        assert tab.wrong == []
        tab.close()


def test_the_labs_figures_are_shown(tabs, serving, findings, tmp_path):
    with serving({}, (), PageContent(None, findings)) as url:
        tab = tabs(url, viewport={"width": 390, "height": 844})
        page = tab.open("lab")
        page.wait_for_selector("figure img")
        until(page, "document.querySelector('figure img').naturalWidth > 0")
        assert page.inner_text(".claim h2") == "<i>halves</i> are small"
        assert "a half: 0.555 (0." in page.inner_text(".claim .effect")
        page.click("text=unknown")
        page.wait_for_selector("text=– not run")
        assert "claim=unknown" in page.url
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        run_python(copied(page, "#copy-python"))
        assert len(json.loads(run_curl(copied(page, "#copy-curl"), tmp_path))) == 2
        assert tab.wrong == []
        tab.close()


# Old answers


def opacity(page, selector):
    return float(page.evaluate("it => getComputedStyle(document.querySelector(it)).opacity", selector))


def hold(tab, path):
    """Holds back what the page asks of this path; the requests are in the list."""
    held = []
    tab.context.route(f"**{path}", lambda route: held.append(route))
    return held


def test_an_emptied_prompt_leaves_no_answer(tab, models):
    page = tab.open("next-token", prompt=PROMPT, token=419)
    page.wait_for_selector(FRESH)
    page.fill("#prompt", "")
    page.wait_for_selector("table.tokens", state="hidden")
    page.wait_for_selector(".editor .note", state="hidden")
    page.wait_for_selector("#step-back", state="hidden")
    assert page.inner_text("#status") == "Write a prompt."
    assert page.is_disabled("#copy-python")
    assert page.is_disabled("#copy-curl")
    assert page.locator("#python").text_content() == ""
    link = copied(page, "#copy-link")
    assert "token=" not in link
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("text=Write a prompt.")
    assert page.input_value("#prompt") == ""
    page.fill("#prompt", "In the beginning")
    page.wait_for_selector(FRESH)
    first = next_token(models["bible"], "In the beginning").tokens[0]
    assert page.locator("button.token").first.text_content() == visible(first.text)


def test_an_answer_that_comes_after_the_prompt_was_emptied_is_not_shown(tab):
    page = tab.open("next-token", prompt=PROMPT)
    page.wait_for_selector(FRESH)
    held = hold(tab, "/playground/next-token")
    page.fill("#prompt", "In the beginning")
    until(page, "document.querySelector('#status').textContent === 'Asking the model …'")
    page.fill("#prompt", "")
    page.wait_for_selector("text=Write a prompt.")
    for route in held:
        route.continue_()
    page.wait_for_timeout(500)
    assert not page.is_visible("table.tokens")
    assert page.inner_text("#status") == "Write a prompt."


def test_while_an_answer_is_awaited_the_old_one_is_dimmed_and_cannot_be_clicked(tab, models):
    page = tab.open("next-token", prompt=PROMPT)
    page.wait_for_selector(FRESH)
    page.locator("button.token").first.click()
    page.wait_for_selector(".chosen")
    page.wait_for_selector(FRESH)
    assert opacity(page, "table.tokens") == 1
    held = hold(tab, "/playground/next-token")
    page.fill("#prompt", "In the beginning")
    # At once, before the new prompt is even asked, and while it is.
    for _ in range(2):
        page.locator("button.token").nth(1).click(force=True)
        page.locator("button.token").nth(1).focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.querySelector('table.tokens').inert")
        link, code = copied(page, "#copy-link"), copied(page, "#copy-python")
        assert "token=" not in link
        assert "In+the+beginning" in link
        assert 'next_token(model, "In the beginning", [], decoders)' in code
        until(page, "document.querySelector('#status').textContent === 'Asking the model …'")
        until(page, "getComputedStyle(document.querySelector('table.tokens')).opacity < 0.5")
    assert len(held) == 1
    assert json.loads(held[0].request.post_data)["tokens"] == []
    held[0].continue_()
    page.wait_for_selector(FRESH)
    first = next_token(models["bible"], "In the beginning").tokens[0]
    assert page.locator("button.token").first.text_content() == visible(first.text)
    assert opacity(page, "table.tokens") == 1
    assert page.inner_text("#status") == ""


def test_an_old_answer_stays_dimmed_after_a_failure_and_one_can_step_back(tab):
    page = tab.open("next-token", prompt=PROMPT)
    page.wait_for_selector(FRESH)

    def refuse(route):
        route.fulfill(status=400, json={"error": {"message": "the context is full"}})

    tab.context.route("**/playground/next-token", refuse)
    page.locator("button.token").first.click()
    page.wait_for_selector("#status.wrong")
    assert page.inner_text("#status") == "the context is full"
    until(page, "getComputedStyle(document.querySelector('table.tokens')).opacity < 0.5")
    tab.context.unroute("**/playground/next-token", refuse)
    page.click("#step-back")
    page.wait_for_selector(FRESH)
    assert "token=" not in page.url
    tab.wrong = [each for each in tab.wrong if "400" not in each]


@pytest.mark.parametrize(("view", "shown"), [("beam-tree", ".tree"), ("attention", ".heads")])
def test_slow_trees_and_maps_are_dimmed_too(tab, view, shown):
    page = tab.open(view, prompt=PROMPT, tokens=4)
    page.wait_for_selector(FRESH)
    held = hold(tab, f"/playground/{view}")
    page.fill("#prompt", "In the beginning")
    until(page, "it => getComputedStyle(document.querySelector(it)).opacity < 0.5", shown)
    assert page.evaluate("[...document.querySelectorAll('.answer')].every((each) => each.inert)")
    until(page, "document.querySelector('#status').textContent === 'Asking the model …'")
    held[-1].continue_()
    page.wait_for_selector(FRESH)
    until(page, "it => getComputedStyle(document.querySelector(it)).opacity === '1'", shown)


def test_texts_of_other_settings_are_dimmed_until_run(tab):
    page = tab.open("side-by-side", prompt=PROMPT, decoder="Greedy()", tokens=5)
    until(page, "document.querySelector('#status').textContent === 'All texts have ended.'")
    page.fill("#prompt", "In the beginning")
    until(page, "document.querySelector('#status').textContent === 'Settings have changed: press Run.'")
    until(page, "getComputedStyle(document.querySelector('.texts')).opacity < 0.5")
    page.click("#run")
    until(page, "document.querySelector('#status').textContent === 'All texts have ended.'")
    assert opacity(page, ".texts") == 1


def test_an_answer_of_a_view_that_was_left_says_nothing(tab):
    page = tab.open("next-token", prompt=PROMPT)
    page.wait_for_selector(FRESH)
    held = hold(tab, "/playground/next-token")
    page.fill("#prompt", "In the beginning")
    page.wait_for_timeout(400)
    page.click("text=Side by side")
    until(page, "document.querySelector('#status').textContent === 'All texts have ended.'")
    for route in held:
        route.continue_()
    page.wait_for_timeout(300)
    assert page.inner_text("#status") == "All texts have ended."


@pytest.mark.parametrize("view", VIEWS)
def test_the_status_stands_beside_the_heading(tab, view):
    page = tab.open(view, prompt=PROMPT, tokens=2, decoder="Beam(2)" if view == "beam-tree" else "Greedy()")
    page.wait_for_selector(FRESH)
    page.fill("#prompt", "")
    page.wait_for_selector("text=Write a prompt.")
    heading, status = page.locator(".heading h2").bounding_box(), page.locator("#status").bounding_box()
    assert abs(heading["y"] + heading["height"] / 2 - status["y"] - status["height"] / 2) < 8
    assert 0 < status["x"] - heading["x"] - heading["width"] < 40


def test_a_second_key_rates_nothing_until_the_next_text_is_shown(tabs, serving, tmp_path):
    systems = {"one": ["Fine.", "A cat."], "other": ["Well.", "cat cat"]}
    ratings = prepare(tmp_path / "set", systems, ["How are you?", "What is it?"], scale="score")
    with serving({}, (), PageContent(ratings)) as url:
        tab = tabs(url)
        page = tab.open("rate", rater="anna")
        page.wait_for_selector(".choices button")
        held = hold(tab, "/playground/rating")
        page.keyboard.press("2")
        page.keyboard.press("0")
        page.wait_for_timeout(300)
        assert len(held) == 1
        held[0].continue_()
        page.wait_for_selector("text=1 of 4 answered")
        assert [it.choice for it in ratings.answers()] == ["2"]
        tab.close()


# Links and the browser's history


def test_back_and_forward_move_between_views(tab):
    page = tab.open("next-token", prompt=PROMPT, decoder="Sample(TopK(3))")
    page.wait_for_selector(FRESH)
    page.locator("button.token").first.click()
    page.wait_for_selector(".chosen")
    page.wait_for_selector(FRESH)
    page.click("text=Beam tree")
    page.wait_for_selector(".tree g.node")
    page.fill("#prompt", "In the beginning")
    page.click("text=Attention")
    page.wait_for_selector(".head")
    assert page.input_value("#prompt") == "In the beginning"
    page.go_back()
    page.wait_for_selector(".tree g.node")
    assert page.title() == "Beam tree · unspool"
    assert page.input_value("#prompt") == "In the beginning"
    page.go_back()
    page.wait_for_selector(".chosen")
    assert page.input_value("#prompt") == PROMPT
    assert page.input_value("input.decoder") == "Sample(TopK(3))"
    assert texts(page, "nav a[aria-current]") == ["Next token"]
    page.go_forward()
    page.wait_for_selector(".tree g.node")
    page.go_forward()
    page.wait_for_selector(".head")
    page.select_option("#model", "dates")
    until(page, "location.hash.includes('model=dates')")
    page.go_back()
    until(page, "document.querySelector('#model').value === 'bible'")


@pytest.mark.parametrize(
    ("view", "values", "note"),
    [
        ("next-token", {"model": "gpt-9"}, "model “gpt-9” is not served here, bible is used"),
        ("next-token", {"token": 10**6}, "token “1000000” is not a whole number from 0 to {tokens}, it is left out"),
        ("side-by-side", {"seed": "abc"}, "seed “abc” is not a whole number from 0 to 2147483648, 1 is used"),
        ("side-by-side", {"tokens": 9999}, "tokens “9999” is not a whole number from 1 to 300, 80 is used"),
        ("beam-tree", {"tokens": "-1"}, "tokens “-1” is not a whole number from 1 to 40, 10 is used"),
        ("attention", {"tokens": 1.5}, "tokens “1.5” is not a whole number from 0 to 40, 8 is used"),
        ("attention", {"layer": 77}, "there is no layer 77: choose from 0 to {layers}; layer 0 is used"),
        ("attention", {"head": 77}, "head 77 is not there, the last is {heads}; 0 is used"),
        ("nowhere", {}, "there is no view “nowhere”, Next token is shown"),
        ("next-token", {"decoder": ["Greedy()"] * 9}, "9 values of decoder are more than 8, the first 8 are used"),
    ],
)  # fmt: skip
def test_what_a_link_asks_for_in_vain_is_said(tab, models, view, values, note):
    page = tab.open(view, prompt=PROMPT, **values)
    page.wait_for_selector(FRESH)
    seen = attention_map(models["bible"], PROMPT, us.Greedy())
    last = {"tokens": models["bible"].vocab_size - 1, "layers": seen.layers - 1, "heads": seen.heads - 1}
    assert page.inner_text("#link-note") == f"In this link: {note.format(**last)}."
    assert page.locator("#link-note").bounding_box()["height"] < 30  # one line
    tab.wrong = [each for each in tab.wrong if "400" not in each]


def test_all_that_a_link_asks_for_in_vain_is_said_until_something_is_changed(tab):
    page = tab.open("side-by-side", prompt=PROMPT, model="x", seed="-3", tokens=0, decoder="Greedy()")
    page.wait_for_selector(FRESH)
    assert page.inner_text("#link-note").count(" is used") == 3
    assert "seed=1" in page.url
    assert "tokens=80" in page.url
    assert "model=bible" in page.url
    page.fill("#prompt", "In the beginning")
    assert page.inner_text("#link-note") == ""


# What all views have


@pytest.mark.parametrize("view", VIEWS)
def test_a_link_shows_the_same_again(tab, view):
    values = {"next-token": {"token": 419}, "attention": {"layer": 1, "head": 3, "tokens": 2}}.get(
        view, {"tokens": 5}
    )
    page = tab.open(view, model="bible", prompt=HOSTILE, **values)
    ready = {
        "next-token": ".chosen",
        "side-by-side": ".card[aria-busy=false]",
        "beam-tree": ".found li",
        "attention": ".lit",
    }
    page.wait_for_selector(ready[view])
    until(page, "!document.querySelector('.card[aria-busy=true]')")
    shown = "[...document.querySelectorAll('main h2, main .text, main .token, main .lit, main g title, main .chosen')].map((each) => each.textContent)"
    first = page.evaluate(shown)
    link = copied(page, "#copy-link")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector(ready[view])
    until(page, "!document.querySelector('.card[aria-busy=true]')")
    assert page.evaluate(shown) == first
    assert page.input_value("#prompt") == HOSTILE
    assert page.locator("main script, main img").count() == 0


@pytest.mark.parametrize("view", VIEWS)
def test_copied_code_runs(tab, view, tmp_path, models):
    page = tab.open(
        view, model="bible", prompt=HOSTILE, tokens=4, token=[419] if view == "next-token" else []
    )
    page.wait_for_selector("#python:not(:empty)", state="attached")
    python, curl = copied(page, "#copy-python"), copied(page, "#copy-curl")
    assert page.locator("#python").text_content() == python
    said, told = run_python(python), run_curl(curl, tmp_path)
    match view:
        case "next-token":
            tokens = json.loads(told)["tokens"]
            assert len(said.splitlines()) == 1 + len(tokens)
            assert all(repr(token["text"]) in said for token in tokens)
        case "side-by-side":
            out = us.generate(models["bible"], HOSTILE, us.Greedy(), max_new_tokens=4, seed=1)
            assert out.text in said
            chunks = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
            whole = "".join(chunk["choices"][0]["text"] for chunk in chunks)
            assert whole.startswith(out.text)
        case "beam-tree":
            assert len(said.splitlines()) > len(json.loads(told)["nodes"])
        case "attention":
            assert len(said.splitlines()) == len(json.loads(told)["queries"])


def test_what_a_model_says_stays_text(tab):
    evil = '<img src=x onerror="alert(1)"><script>alert(2)</script>'

    def answer(route):
        told = route.fetch().json()
        told["tokens"][0]["text"] = told["chosen"][0]["text"] = evil
        told["decoders"][0]["error"] = evil
        route.fulfill(json=told)

    tab.context.route("**/playground/next-token", answer)
    page = tab.open("next-token", prompt=PROMPT, token=419)
    page.wait_for_selector("button.token")
    assert page.locator("button.token").first.text_content() == page.locator(".chosen").text_content() == evil
    assert page.locator(".note").first.text_content() == evil
    assert page.locator("main img, main script").count() == 0
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>'; return ''; } catch (error) { return error.name; } }"
    )
    assert refused == "TypeError"
    tab.wrong = [each for each in tab.wrong if "TrustedHTML" not in each]


def test_a_key_is_asked_for_once(tabs, serving, models, tmp_path):
    key = "a-key-of-sixteen-characters"
    with serving({"bible": models["bible"]}, [key]) as url:
        tab = tabs(url)
        page = tab.open("beam-tree", prompt=PROMPT, tokens=2)
        for given in ("wrong", key):
            page.wait_for_selector("#key-dialog[open]")
            page.fill("#key", given)
            page.keyboard.press("Enter")
        page.wait_for_selector(".tree g.node")
        page.reload()
        page.wait_for_selector(".tree g.node")
        assert key not in json.dumps(page.evaluate("({...localStorage})"))
        assert key not in page.url
        command = copied(page, "#copy-curl")
        assert key not in command
        assert json.loads(run_curl(command, tmp_path, UNSPOOL_API_KEY=key))["nodes"]
        assert {each for each in tab.wrong if "401" not in each} == set()
        tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_every_view_without_scrolling_sideways(tabs, url, scheme):
    tab = tabs(
        url, viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True, is_mobile=True
    )
    for view in VIEWS:
        page = tab.open(view, prompt="unbroken" * 8 + " And God said", tokens=6)
        page.wait_for_selector(".token, .card[aria-busy=false], .tree g.node")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        nameless = "[...document.querySelectorAll('button, input, select, textarea, a')].filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim())).map((each) => each.outerHTML)"
        assert page.evaluate(nameless) == []
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper))) > 380) == (scheme == "light")
    assert tab.wrong == []


def test_colours_are_chosen_and_kept(tab):
    page = tab.open("attention", prompt="And God", tokens=0)
    page.wait_for_selector(".head")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.style.colorScheme") == "dark"
    page.reload()
    page.wait_for_selector(".head")
    assert page.evaluate("document.documentElement.style.colorScheme") == "dark"
