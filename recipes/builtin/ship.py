"""Put a trained run into the package as a built-in model, its weights in half precision.

python recipes/builtin/ship.py runs/bible bible
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from safetensors.torch import load_file

from unspool.models.loading import load_folder, save
from unspool.models.loading.model_names import BUILTIN, builtin_folder
from unspool.models.loading.safetensors_files import WEIGHTS, write_safetensors


def main() -> int:
    """Read the run, write the folder, say how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a finished run folder")
    parser.add_argument("name", choices=BUILTIN)
    args = parser.parse_args()
    folder = builtin_folder(args.name)
    save(load_folder(args.run), folder)
    weights = {name: tensor.half() for name, tensor in load_file(folder / WEIGHTS).items()}
    write_safetensors(weights, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors writes files that only their owner may read
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder.name}: {sum(it.numel() for it in weights.values()):,} weights, {size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
