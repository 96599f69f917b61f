"""A served page in Debian's chromium; whatever it asks of anybody else is refused and counted."""

import os
import shutil
import socket
import threading
import warnings
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest
import uvicorn

import unspool as us
from unspool.lab.claim import Claim
from unspool.lab.registry import digest
from unspool.lab.results import Finding, Result
from unspool.serve.page.routes import StaticFiles
from unspool.serve.requests import Limits
from unspool.serve.scheduler import Scheduler
from unspool.serve.server import Server, create_app
from unspool.serve.streaming import WorkerPool

NEEDED = "UNSPOOL_NEEDS_CHROMIUM"
"""Set by .ci/run: there, a page that is not tried is a failure."""


def missing(reason):
    if os.environ.get(NEEDED):
        pytest.fail(f"{NEEDED} is set, and {reason}")
    pytest.skip(f"the page is not tried: {reason} (apt-get install chromium; make setup)")


@pytest.fixture(scope="module")
def chromium():
    """The browser, for all tests of a file."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        missing("there is no chromium")
    with sync_playwright() as play:
        # As root, in a container, chromium has no sandbox of its own; it opens nothing but our page.
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def findings():
    """Two claims of a lab: one that two seeds have measured, and one that nobody has."""

    def draw(figure, runs):
        figure.subplots().plot([run["half"] for run in runs])

    def claim(name):
        return Claim(
            name=name,
            statement=f"<i>{name}</i> are small",
            source="A document, §1",
            measured="By hand.",
            primary="a half",
            matters=0.1,
            assumed=(0.5, 0.1),
            seeds=10,
            measure=draw,
            draw=draw,
        )

    numbers = ({"effect": 0.5 + seed / 100, "half": seed / 2} for seed in range(1, 11))
    halves = claim("halves")
    plan = digest(halves.plan())
    results = tuple(
        Result("halves", seed, False, plan, "", it, 1.0) for seed, it in enumerate(numbers, start=1)
    )
    return Finding(halves, results), Finding(claim("unknown"), ())


@contextmanager
def served(models, keys=(), content=None):
    """The address of a server for these models."""
    engines = {name: Scheduler(model) for name, model in models.items()}
    app = StaticFiles(create_app(Server(engines, WorkerPool(8, 8), Limits()), keys, content))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def serving():
    """Other servers."""
    return served


@pytest.fixture(scope="module")
def models():
    return {name: us.load(name) for name in ("bible", "dates")}


@pytest.fixture(scope="module")
def url(models):
    with served(models) as found:
        yield found


class Tab:
    """One tab: its page, what went wrong in it, and what it asked of others."""

    def __init__(self, browser, url, **options):
        self.url, self.foreign, self.wrong, self.closed = url, [], [], False
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **options})
        self.context.set_default_timeout(30_000)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        self.page.on("console", lambda told: self.wrong.append(told.text) if told.type == "error" else None)

    def _route(self, route):
        if route.request.url.startswith(self.url + "/"):
            route.continue_()
        else:
            self.foreign.append(route.request.url)
            route.abort()

    def open(self, view, **values):
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/#/{view}?{urlencode(values, doseq=True)}")
        return self.page

    def close(self):
        if self.closed:
            return
        self.closed = True
        # A request that is still under way when its tab is closed is nobody's loss.
        self.context.unroute_all(behavior="ignoreErrors")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self.context.close()


@pytest.fixture
def tab(chromium, url):
    """A tab on a laptop; nothing may go wrong in it, and nobody else may be asked."""
    found = Tab(chromium, url)
    yield found
    found.close()
    assert found.wrong == []
    assert found.foreign == []


@pytest.fixture
def tabs(chromium):
    """Tabs of other kinds."""
    made = []

    def make(url, **options):
        made.append(Tab(chromium, url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert [each.foreign for each in made] == [[]] * len(made)
