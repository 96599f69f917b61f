import re

from starlette.testclient import TestClient

from unspool.serve.page.routes import FOLDER, StaticFiles


async def behind(scope, receive, send):
    """What stands behind the page."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})


PAGE = StaticFiles(behind)
CLIENT = TestClient(PAGE)


def test_the_page_and_its_files_are_given():
    page = CLIENT.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    assert "/playground/main.js" in named
    for name in named:
        assert CLIENT.get(name).status_code == 200
    head = CLIENT.head("/")
    assert (head.content, head.headers["content-length"]) == (b"", str(len(page.content)))


def test_the_browser_is_told_to_run_nothing_else():
    policy = CLIENT.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "*" not in policy
    for name in PAGE.files:
        assert CLIENT.get(name).headers["content-security-policy"] == policy


def test_nothing_foreign_is_named_and_no_html_is_made_of_strings():
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace('"http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?://|//cdn", text), path.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), (
            path.name
        )


def test_everything_else_is_left_to_what_stands_behind():
    for path in (
        "/playground/",
        "/playground/next-token",
        "/playground/../guard.py",
        "/playground/page",
        "/v1/models",
    ):
        assert CLIENT.get(path).status_code == 418
    assert CLIENT.post("/").status_code == 418
