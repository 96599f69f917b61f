"""`us.integrations.generate_dataset`: generate for every prompt of a Ray dataset.

    ds = ray.data.read_parquet("prompts/")
    ds = us.integrations.generate_dataset(ds, "bible", us.Sample(us.TopP(0.9)), seed=1)
    ds.write_parquet("answers/")

The dataset stays lazy. Rows keep their columns and gain "text", "finish_reason", "total" and "seed". A
repeated prompt is the next sample of that prompt (`decode.rng`), so rows are grouped by prompt and seed and
numbered in the order of their other columns. Texts equal those of `us.generate` on one machine and do not
depend on blocks, workers or batches. The order of the rows changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from unspool import config
from unspool.arguments import as_int, as_number
from unspool.decode.rng import fresh_seed
from unspool.decode.spec import as_decoder
from unspool.integrations.ray.corpus import ray_package
from unspool.interfaces import Decoder

OUTPUT_COLUMNS = ("text", "finish_reason", "total", "seed")
SAMPLE_COLUMN = "unspool: sample"
"""Temporary column: the sample number of a row."""
GROUP_COLUMN = "unspool: asked"
"""Temporary column: seed and prompt, to group rows."""


class DatasetGenerator:
    """A Ray actor with a model that generates for batches of rows."""

    def __init__(
        self, model: str, load_options: Mapping[str, Any], decoder: Decoder, options: Mapping[str, Any]
    ) -> None:
        from unspool.integrations.loading import load

        self.model = load(model, **load_options)
        self.decoder = decoder
        self.options = dict(options)
        self.column = self.options.pop("column")
        self.seed = self.options.pop("seed")

    def __call__(self, batch: Any) -> Any:
        """The rows with output columns."""
        from unspool.decode.run import Run

        prompts, samples = prompts_of(batch, self.column), batch[SAMPLE_COLUMN].to_pylist()
        seeds = seeds_of_rows(batch, self.seed)
        run = Run(self.model, prompts, self.decoder, seed=seeds, **self.options)
        outputs = [output for (output,) in run.with_job(first_samples=tuple(samples)).outputs()]
        batch = batch.drop_columns([SAMPLE_COLUMN])
        for name in OUTPUT_COLUMNS:
            cells = [[getattr(output, name) for output in outputs]]
            at = batch.schema.get_field_index(name)
            batch = batch.append_column(name, cells) if at < 0 else batch.set_column(at, name, cells)
        return batch


def prompts_of(batch: Any, column: str) -> list[str]:
    """The prompts of a batch."""
    return [str(prompt) for prompt in batch[column].to_pylist()]


def seeds_of_rows(batch: Any, seed: int) -> list[int]:
    """The seed column of a batch; `seed` for rows without one."""
    column = batch["seed"].to_pylist() if "seed" in batch.column_names else [None] * len(batch)
    return [seed if cell is None else int(cell) for cell in column]


def number_samples(ds: Any, column: str, seed: int) -> Any:
    """Add the sample number of every row among the rows of its prompt and seed."""

    def add_key(batch: Any) -> Any:
        keys = zip(seeds_of_rows(batch, seed), prompts_of(batch, column), strict=True)
        return batch.append_column(GROUP_COLUMN, [[f"{row_seed} {prompt}" for row_seed, prompt in keys]])

    return (
        ds.map_batches(add_key, batch_format="pyarrow")
        .groupby(GROUP_COLUMN)
        .map_groups(number_rows, batch_format="pyarrow")
        .drop_columns([GROUP_COLUMN])
    )


def number_rows(group: Any) -> Any:
    """Number the rows of one prompt and seed in the order of their cells."""
    rows = [
        [(cell is None, 0 if cell is None else cell) for cell in row.values()] for row in group.to_pylist()
    ]
    try:
        order = sorted(range(len(rows)), key=rows.__getitem__)
    except TypeError:  # cells without an order, such as structs
        order = sorted(range(len(rows)), key=lambda row: repr(rows[row]))
    return group.take(order).append_column(SAMPLE_COLUMN, [list(range(len(order)))])


def generate_dataset(
    ds: Any,
    model: str | os.PathLike[str],
    decoder: Decoder | str | None = None,
    *,
    column: str = "prompt",
    seed: int | None = None,
    max_new_tokens: int = config.MAX_NEW_TOKENS,
    stop: str | Sequence[str] | None = None,
    workers: int | None = None,
    gpus: float = 0,
    batch_size: int = config.MAX_BATCH_ROWS,
    load: Mapping[str, Any] | None = None,
) -> Any:
    """Generate a text for every row with a pool of at most `workers` actors (default: one per processor).

    Every worker loads `model`, a name or folder, with the `us.load` arguments in `load`. A "seed" column
    overrides `seed`.
    """
    ray = ray_package()
    if not hasattr(ds, "map_batches"):
        raise TypeError(f"ds is {ds!r:.60}, but must be a Ray dataset such as ray.data.read_parquet(…)")
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(
            f"model is a {type(model).__name__}, but must be a name or folder that each worker can load"
        )
    if workers is not None:
        workers = as_int("workers", workers, at_least=1, advice="Each loads the model.")
    if seed is None:
        seed = fresh_seed()
    if load is not None and not isinstance(load, Mapping):
        raise TypeError(f"load is {load!r:.60}, but must be us.load arguments such as {{'weights': 'int8'}}")
    schema = ds.schema()
    if schema is not None and column not in schema.names:
        raise ValueError(f"the dataset has no column {column!r}: choose from {', '.join(schema.names)}")
    seed = as_int("seed", seed, at_least=0, advice="Any will do.")
    options = {
        "column": column,
        "seed": seed,
        "max_new_tokens": as_int("max_new_tokens", max_new_tokens, at_least=1, advice="It ends a text."),
        "stop": _as_stop_strings(stop),
    }
    return number_samples(ds, column, seed).map_batches(
        DatasetGenerator,
        fn_constructor_args=(os.fspath(model), dict(load or {}), as_decoder(decoder), options),
        batch_size=as_int("batch_size", batch_size, at_least=1, advice="Rows decoded side by side."),
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=1,
        num_gpus=as_number("gpus", gpus, at_least=0, advice="It is of each worker.") or None,
    )


def _as_stop_strings(stop: Any) -> list[str]:
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, Sequence) or not all(isinstance(text, str) for text in stops):
        raise TypeError(f"stop is {stop!r:.60}, but must be a string or a list of strings")
    return list(stops)
