"""docs/techniques.md and the reference in docs/training.md follow the source."""

import pytest

from unspool.decode.spec import TECHNIQUES


@pytest.fixture(scope="module")
def generator(script):
    return script("docs/generate.py")


@pytest.fixture(scope="module")
def reference(script):
    return script("docs/reference.py")


def test_the_techniques_are_up_to_date(root, generator):
    page = (root / "docs/techniques.md").read_text(encoding="utf-8")
    assert page == generator.techniques_page(), "run `make docs`"


def test_every_decoder_is_in_a_file_of_a_technique(generator):
    texts = [path.read_text(encoding="utf-8") for path in {it.path for it in generator.read_techniques()}]
    missing = {name for name in TECHNIQUES if not any(f"class {name}" in text for text in texts)}
    assert missing == set()


TECHNIQUE = '"""Cut: keep few.\n\n    p > 0\n\nMe 2020, §1.\npapers.bib: me2020cut\n"""\n'


def test_the_page_follows_module_class_and_function_docstrings(tree, generator):
    inside = TECHNIQUE.replace("\n", "\n    ")
    root = tree(
        {
            "papers.bib": "@misc{me2020cut,\n  title = {On {Cutting}},\n  url = {https://x.y}\n}\n",
            "src/unspool/decode/__init__.py": "if TYPE_CHECKING:\n    from x import Bare as Bare",
            "src/unspool/decode/transforms/cuts.py": f"{TECHNIQUE}\nclass Cut:\n    {inside}\n"
            f"def clip():\n    {inside}\ndef _hidden():\n    {inside}\n"
            'class Bare:\n    """An exported name.\n\n        a = b\n    """\n',
            "src/unspool/evaluate/cuts.py": f"{TECHNIQUE}class Measure:\n    {inside}",
            "src/unspool/heads/uncited.py": '"""An equation.\n\n    a = b\n"""\n',
            "src/unspool/engine/fast.py": TECHNIQUE,
        }
    )
    assert [it.title for it in generator.read_techniques(root)] == [
        "cuts (decode.transforms.cuts)",
        "Cut",
        "clip",
        "Bare",
        "cuts (evaluate.cuts)",
        "Measure",
    ]
    page = generator.techniques_page(root)
    for part in (
        "[Bare](#bare)",
        "[cuts (decode.transforms.cuts)](#cuts-decodetransformscuts)",
        "### Measure\n\nCut: keep few.\n\n```text\np > 0\n```\n\nMe 2020, §1.\n\n- [On Cutting](https://x.y)\n",
        "[src/unspool/evaluate/cuts.py](../src/unspool/evaluate/cuts.py): `Measure`",
    ):
        assert part in page
    assert "uncited" not in page
    assert "fast" not in page


def test_a_missing_paper_is_an_error(tree, generator):
    root = tree({"papers.bib": "", "src/unspool/heads/cut.py": TECHNIQUE})
    with pytest.raises(ValueError, match=r"heads/cut\.py cites me2020cut: add it to papers\.bib"):
        generator.techniques_page(root)


def test_the_recipe_reference_is_up_to_date(root, reference):
    page = (root / "docs/training.md").read_text(encoding="utf-8")
    assert page == reference.training_page(root), "run `make docs`"


def test_the_reference_has_every_kind_and_every_key(root, reference):
    from dataclasses import fields

    from unspool.data import BATCHES, DATA
    from unspool.data.known_languages import LANGUAGES
    from unspool.data.known_languages.tasks import TASKS
    from unspool.objectives import OBJECTIVES
    from unspool.tokenization import TOKENIZER_CONFIGS
    from unspool.training import TrainSettings
    from unspool.training.hooks import HOOKS
    from unspool.training.optim import SCHEDULES

    page = reference.reference(root)
    for each in fields(TrainSettings):
        assert f"| `{each.name}` |" in page.partition("### `[train]`")[2]
    for kinds in (BATCHES, DATA, LANGUAGES, TASKS, OBJECTIVES, TOKENIZER_CONFIGS, HOOKS, SCHEDULES):
        for kind, settings in kinds.items():
            assert f'**`kind = "{kind}"`**' in page
            for each in fields(settings):
                assert f"| `{each.name}` |" in page


SMALL_PACKAGE = {
    "src/unspool/training/recipe.py": (
        'from unspool.kinds import KINDS\nSECTIONS = (Section("seed", int), Section("one", KINDS, is_list=True))\n'
    ),
    "src/unspool/config.py": "LIMIT = 1000\nPaths = str | tuple[str, ...]\n",
    "src/unspool/kinds.py": "from unspool.one import One\nKINDS: dict[str, type] = {'one': One}\n",
    "src/unspool/one.py": (
        "from unspool.config import LIMIT, Paths\nfrom unspool.above import Above\n"
        'class One(Above):\n    """Does a\n    thing."""\n    limit: int = LIMIT\n    """Not | more."""\n'
        '    paths: Paths | None = None\n    """Files."""\n'
    ),
    "src/unspool/above.py": 'class Above:\n    way: Literal["a", "b"]\n    """A or b."""\n    _x: int = 3\n',
}


def test_the_reference_follows_the_dataclasses(tree, reference):
    page = reference.reference(tree(SMALL_PACKAGE))
    for part in (
        "### `[[one]]`",
        "`one` have:",
        '| `way` | `"a"` or `"b"` | required | A or b. |',
        '**`kind = "one"`** Does a thing.',
        "| `limit` | whole number | `1000` | Not \\| more. |",
        "| `paths` | text or list of texts | none | Files. |",
    ):
        assert part in page
    assert "_x" not in page


def test_a_key_without_a_docstring_is_an_error(tree, reference):
    bare = {**SMALL_PACKAGE, "src/unspool/above.py": "class Above:\n    way: int\n"}
    with pytest.raises(ValueError, match=r"above\.Above\.way has no docstring"):
        reference.reference(tree(bare))
