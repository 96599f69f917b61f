"""Write docs/techniques.md, its index in the README, and the reference in docs/training.md.

    python docs/generate.py [--check]

Only the standard library, and nothing is imported from the package: docstrings are read from the source. The
techniques come from the docstrings of their modules; the reference is made in reference.py.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from reference import training_page

ROOT = Path(__file__).resolve().parents[1]

# Folder → title, in the order of the page; a module stands in the innermost room that holds it.
ROOMS = {
    "decode/transforms": "Transforms: reshape what is drawn from",
    "decode/picks": "Picks: draw the token",
    "decode/search": "Searches: from prompts to finished texts",
    "decode/ranking": "Ranking: how searches score hypotheses and when they stop",
    "decode/combine": "Combinations: models made of models",
    "decode": "Around the search",
    "basis": "The basis-aware test",
    "data/languages": "Languages whose truth is known, and tiny tasks",
    "data": "Data",
    "nn": "Building blocks",
    "heads": "Heads: hidden vectors to log-probabilities",
    "models": "Models",
    "objectives": "Objectives",
    "training": "Training",
    "diagnose": "Diagnoses",
    "evaluate": "Measures",
}
# What makes a technique fast or proves it, and is none itself.
WITHIN = ("basis/solver", "basis/verification", "decode/fast_sampling", "decode/exact_sampling", "engine")
# The equation of a module that has this name is computed by these functions, some of them in another file, …
COMPUTED = {
    "AdamW": "AdamW.step",
    "AttentionCost": "without_keys with_keys",
    "BasisAware": "Bound._row",
    "BasisStep": "BasisStep.verdicts",
    "BasisTest": "BasisTest.accepts basis/solver/cascade.py:Cascade.verdicts",
    "Beam": "decode/search/candidates.py:propose",
    "BeamSample": "BeamSample.__call__ decode/search/stochastic_beam.py:perturb",
    "Capped": "_capped heads/elementwise.py:BentScores.logits",
    "ConstrainedBeam": "_Guided.take",
    "ContrastiveSearch": "ContrastiveSearch._walk SeenVectors.likeness",
    "DRY": "DRY._penalty DRY._match",
    "DiverseBeam": "DiverseBeam._priced",
    "EarlyExit": "EarlyExit._contrast divergence",
    "Exits": "Exits._said",
    "DependencyHeads": "arc_cost",
    "Greedy": "decode/picks.py:ArgMax.draw",
    "KnownLanguage": "KnownLanguage.log_prob",
    "LSTM": "GRU.advance LSTM.advance",
    "LaneFeed": "LaneFeed.batch",
    "MBR": "rank _expected",
    "Mixture": "_logp",
    "Multinomial": "_descend",
    "NoRepeatNgram": "NoRepeatNgram._completions",
    "Rotary": "Sinusoidal._build Rotary._build rotate",
    "Sample": "decode/search/sampling.py:run_rows decode/search/sampling.py:reshape",
    "Reallocation": "Reallocation.moves",
    "SenseTable": "SenseTable.by_word",
    "Sigsoftmax": "_squashed heads/elementwise.py:BentScores.logits",
    "Speculative": "Speculative._advance _redraw",
    "StochasticBeam": "StochasticBeam.__call__ decode/search/stochastic_beam.py:conditioned",
    "Masked": "Masked.weigh",
    "MaskedDiffusionLoss": "MaskedDiffusionLoss.weigh",
    "Truncation": "Truncation.__call__",
    "Verdict": "basis/verifier.py:Inequality.holds basis/verifier.py:Counterexample.exists",
    "attend": "last mean attend",
    "SummedMeasure": "SummedMeasure.value mean_of ratio_of perplexity_of",
    "agreements": "agreements",
    "alpha": "_coincidences _alpha _nominal _ordinal",
    "approximate_randomisation": "paired_bootstrap approximate_randomisation",
    "bleu": "exact_match bleu chrf reward_of",
    "calibration": "_binned",
    "bradley_terry_strengths": "strengths",
    "bend": "kernel _Profile.forward",
    "conditioned": "perturb conditioned",
    "decoder_truth": "decoder_truth divergence",
    "distinct_n": "rep_n seq_rep_n distinct_n zipf_coefficient",
    "exposure": "exposure true_exposure",
    "find_loop": "find_loop",
    "kappa_of_sorted": "kappa KappaRule.mask",
    "linear_loss": "_Sums.add",
    "launched": "training/update.py:numbers",
    "least_error": "spectrum least_error",
    "mauve": "mauve",
    "post": "pre post both",
    "overlap_measures": "overlap_measures",
    "optimality_gap": "underestimation failures optimality_gap",
    "top_n_sigma": "top_k top_p typical top_n_sigma epsilon min_p top_a eta kappa",
    "update": "update",
}
# … any other by the first of these methods that its public classes have, or by its first public function.
METHODS = ("keeps", "draw", "join", "__call__", "prepare", "forward", "chances", "hidden")
BEGIN, FINISH = "<!-- techniques, written by `make docs` -->", "<!-- up to here -->"
CITATION = re.compile(r"papers\.bib:\s+(\w[\w:-]*(?:,\s+[a-z]+\d{4}\w*)*)")

HEADER = """# Techniques

Every technique with its equation and its paper, one file each, and the function that computes it. This page
is written by `make docs` from the docstrings of the source, where symbols and departures from the papers are
explained.
"""


@dataclass(frozen=True)
class Technique:
    """One module's docstring, taken apart."""

    path: Path
    title: str
    names: tuple[str, ...]
    """What its room exports of it."""
    computed: tuple[tuple[str, Path], ...]
    """The functions or methods that compute the equation, and their files."""
    sentence: str
    equation: str
    source: str
    """The paragraphs that cite papers."""
    keys: tuple[str, ...]
    """Of those papers, in papers.bib."""


def read(path: Path, root: Path) -> Technique | None:
    """The technique of a module; None where its docstring shows no equation, or its room is within another.

    One without a paper counts if one of the rooms of `decode` exports it.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree) or ""
    first, *rest = docstring.split("\n\n")
    equation = next((part for part in rest if part.startswith("    ")), None)
    cited = [part for part in rest if CITATION.search(part) and part != equation]
    keys = [key for found in CITATION.findall(docstring) for key in re.split(r",\s+", found)]
    names = tuple(node.name for node in _public(tree) if node.name in _exports(path.parent))
    room = _room(path, root)
    if room not in ROOMS or equation is None or not (keys or (room.startswith("decode/") and names)):
        return None
    return Technique(
        path,
        title=path.stem.replace("_", " "),
        names=names,
        computed=_computed(path, tree, root),
        sentence=" ".join(first.split()),
        equation="\n".join(line.rstrip() for line in _uncited(textwrap.dedent(equation)).splitlines()),
        source=" ".join(_uncited("\n\n".join(cited)).split()).rstrip("; "),
        keys=tuple(dict.fromkeys(keys)),
    )


def _public(tree: ast.Module) -> list[ast.ClassDef | ast.FunctionDef]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    ]


def _computed(path: Path, tree: ast.Module, root: Path) -> tuple[tuple[str, Path], ...]:
    public = _public(tree)
    for node in public:
        if node.name in COMPUTED:
            return tuple(_found(said, path, root) for said in COMPUTED[node.name].split())
    classes = [node for node in public if isinstance(node, ast.ClassDef)]
    real = [node for node in classes if "Protocol" not in map(ast.unparse, node.bases)]
    for method in METHODS:
        if found := [f"{node.name}.{method}" for node in real if method in _methods(node)]:
            return tuple((name, path) for name in found)
    functions = [node.name for node in public if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise ValueError(f"{path}: what computes its equation? Say so in COMPUTED of docs/generate.py")
    return ((functions[0], path),)


def _found(said: str, path: Path, root: Path) -> tuple[str, Path]:
    """A function, or Class.method, that COMPUTED says, and its file."""
    elsewhere, _, name = said.rpartition(":")
    path = root / "src/unspool" / elsewhere if elsewhere else path
    known = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            known |= {f"{node.name}.{method}" for method in _methods(node)}
        elif isinstance(node, ast.FunctionDef):
            known.add(node.name)
    if name not in known:
        raise ValueError(
            f"{path} has no {name}: COMPUTED of docs/generate.py says that it computes an equation"
        )
    return name, path


def _methods(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def _uncited(text: str) -> str:
    """The text without the keys, which the page replaces by titles, and without the brackets around them."""
    text = re.sub(rf"\s*\(\s*{CITATION.pattern}\s*\)", "", text)
    return re.sub(rf"[;,]?\s*{CITATION.pattern}", "", text)


def _exports(folder: Path) -> set[str]:
    init = folder / "__init__.py"
    for node in ast.parse(init.read_text(encoding="utf-8")).body if init.is_file() else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def _room(path: Path, root: Path) -> str:
    folder = path.parent.relative_to(root / "src/unspool").as_posix()
    inside = [room for room in (*ROOMS, *WITHIN) if f"{folder}/".startswith(f"{room}/")]
    return max(inside, key=len, default="")


def papers(root: Path) -> dict[str, tuple[str, str]]:
    """Key → title and address, from papers.bib."""
    found = {}
    for entry in re.split(r"^@", (root / "papers.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        key = entry[entry.index("{") + 1 : entry.index(",")].strip()
        fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$", entry, re.MULTILINE | re.DOTALL))
        title = " ".join(re.sub(r"[{}]", "", fields.get("title", key)).split())
        found[key] = (title, fields.get("url", ""))
    return found


def show(technique: Technique, root: Path, known: dict[str, tuple[str, str]]) -> str:
    """The technique's part of the page."""
    where = technique.path.relative_to(root).as_posix()
    lines = [f"### {technique.title}\n", f"{technique.sentence}\n", f"```text\n{technique.equation}\n```\n"]
    if technique.source:
        lines.append(f"{technique.source}\n")
    if absent := [key for key in technique.keys if key not in known]:
        raise ValueError(f"{where} cites {', '.join(absent)}: papers.bib has no such entry")
    if technique.keys:
        lines += [*(f"- {_link(*known[key])}" for key in technique.keys), ""]
    return "\n".join([*lines, f"[{where}](../{where}): {_where(technique, root)}\n"])


def _where(technique: Technique, root: Path) -> str:
    """The functions that compute it; those of other files with a link."""
    said = []
    for name, path in technique.computed:
        there = path.relative_to(root).as_posix()
        said.append(f"`{name}`" + (f" in [{path.name}](../{there})" if path != technique.path else ""))
    return ", ".join(said)


def _link(title: str, address: str) -> str:
    return f"[{title}]({address})" if address else title


def techniques(root: Path = ROOT) -> dict[str, list[Technique]]:
    """Title of a room → its techniques, each with a title that no other one has."""
    modules = sorted(path for path in (root / "src/unspool").rglob("*.py") if path.name != "__init__.py")
    shown = [technique for path in modules if (technique := read(path, root)) is not None]
    titles = Counter(each.title for each in shown)
    found: dict[str, list[Technique]] = {title: [] for title in ROOMS.values()}
    for each in shown:
        title = each.title if titles[each.title] == 1 else f"{each.title} of {each.path.parent.name}"
        found[ROOMS[_room(each.path, root)]].append(replace(each, title=title))
    return {title: inside for title, inside in found.items() if inside}


def anchor(technique: Technique) -> str:
    """Where the README leads to."""
    return f"docs/techniques.md#{technique.title.replace(' ', '-')}"


def page(root: Path = ROOT) -> str:
    """The whole of docs/techniques.md."""
    known, parts = papers(root), [HEADER]
    for title, inside in techniques(root).items():
        parts += [f"## {title}\n", *(show(each, root, known) for each in inside)]
    return "\n".join(parts)


def readme(root: Path = ROOT) -> str:
    """The whole of README.md, with its index of techniques as the source has it."""
    page = (root / "README.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(FINISH)
    if not begin or not end:
        raise ValueError(f"README.md has no place for the techniques: {BEGIN} … {FINISH}")
    rows = [
        f"| **{title}** | {' · '.join(map(_index, inside))} |" for title, inside in techniques(root).items()
    ]
    return before + "\n".join([BEGIN, "| | |", "|---|---|", *rows, FINISH]) + after


def _index(technique: Technique) -> str:
    decoders = technique.names if "decode" in technique.path.parts else ()
    words = [f"`{name}`" for name in decoders] or [technique.title]
    return " ".join(f"[{word}]({anchor(technique)})" for word in words)


def main(argv: list[str]) -> int:
    """Write the pages, or with --check only say whether they would change."""
    status = 0
    pages = {"docs/techniques.md": page(), "README.md": readme(), "docs/training.md": training_page(ROOT)}
    for name, new in pages.items():
        target = ROOT / name
        if argv == ["--check"]:
            same = target.is_file() and target.read_text(encoding="utf-8") == new
            print(f"{name} is up to date" if same else f"{name} is not up to date: run `make docs`")
            status |= not same
        else:
            target.write_text(new, encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
