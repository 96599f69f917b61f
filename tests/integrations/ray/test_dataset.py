import pyarrow as pa
import pytest

import unspool as us
from unspool.integrations.ray.dataset import SAMPLE_COLUMN, DatasetGenerator, number_rows

SETTINGS = {"column": "prompt", "seed": 1, "max_new_tokens": 6, "stop": None}
PROMPTS = ["In the beginning", "And he said", "In the beginning"]


def test_a_batch_equals_one_machine():
    generator = DatasetGenerator("bible", {}, us.Sample(us.TopP(0.9)), SETTINGS)
    rows = {"prompt": PROMPTS, "id": [7, 8, 9], "seed": [None, 5, 6], SAMPLE_COLUMN: [0, 0, 0]}
    result = generator(pa.table(rows))
    outputs = us.generate(
        us.load("bible"), PROMPTS, us.Sample(us.TopP(0.9)), seed=[1, 5, 6], max_new_tokens=6
    )
    assert result["text"].to_pylist() == [it.text for it in outputs]
    assert result["seed"].to_pylist() == [1, 5, 6]
    assert result["id"].to_pylist() == [7, 8, 9]
    assert result.column_names == ["prompt", "id", "seed", "text", "finish_reason", "total"]


def test_rows_of_one_prompt_are_numbered_by_their_other_columns():
    rows = [{"prompt": "a", "id": n, "note": None} for n in (11, 2, 3)]
    (first, second) = (number_rows(pa.Table.from_pylist(order)).to_pylist() for order in (rows, rows[::-1]))
    assert first == second
    assert [(row["id"], row[SAMPLE_COLUMN]) for row in first] == [(2, 0), (3, 1), (11, 2)]
    same = number_rows(pa.Table.from_pylist([{"prompt": "a", "tags": {"x": [1]}}] * 3))
    assert same[SAMPLE_COLUMN].to_pylist() == [0, 1, 2]


def test_a_repeated_prompt_gets_the_next_sample():
    generator = DatasetGenerator("bible", {}, us.Sample(us.TopP(0.9)), SETTINGS)
    rows = pa.table({"prompt": ["And he said"] * 4, SAMPLE_COLUMN: [2, 0, 3, 1]})
    outputs = us.generate(
        us.load("bible"), "And he said", us.Sample(us.TopP(0.9)), n=4, seed=1, max_new_tokens=6
    )
    assert generator(rows)["text"].to_pylist() == [outputs[n].text for n in (2, 0, 3, 1)]


def test_wrong_dataset_arguments_are_rejected():
    with pytest.raises(TypeError, match=r"ds is \['a'\], but must be a Ray dataset"):
        us.integrations.generate_dataset(["a"], "bible")

    class Dataset:
        map_batches = None

    with pytest.raises(TypeError, match="must be a name or folder"):
        us.integrations.generate_dataset(Dataset(), us.load("bible"))
    with pytest.raises(ValueError, match="workers"):
        us.integrations.generate_dataset(Dataset(), "bible", workers=0)
