import pyarrow as pa
import pytest

import unspool as us
from unspool.adapters.ray.generated_dataset import DatasetSpeaker

ASKED = {"column": "prompt", "seed": 1, "max_new_tokens": 6, "stop": None}
PROMPTS = ["In the beginning", "And he said", "In the beginning"]


def test_a_batch_is_answered_as_one_machine_answers_it():
    speaker = DatasetSpeaker("bible", {}, us.Sample(us.TopP(0.9)), ASKED)
    found = speaker(pa.table({"prompt": PROMPTS, "id": [7, 8, 9], "seed": [None, 5, 6]}))
    said = us.generate(us.load("bible"), PROMPTS, us.Sample(us.TopP(0.9)), seed=[1, 5, 6], max_new_tokens=6)
    assert found["text"].to_pylist() == [it.text for it in said]
    assert found["seed"].to_pylist() == [1, 5, 6]
    assert found["id"].to_pylist() == [7, 8, 9]
    assert found.column_names == ["prompt", "id", "seed", "text", "finish", "total"]


def test_what_is_no_dataset_or_no_name_is_refused():
    with pytest.raises(TypeError, match=r"ds is \['a'\], but must be a Ray dataset"):
        us.generate_dataset(["a"], "bible")

    class Dataset:
        map_batches = None

    with pytest.raises(TypeError, match="must be the name or the folder"):
        us.generate_dataset(Dataset(), us.load("bible"))
    with pytest.raises(ValueError, match="workers"):
        us.generate_dataset(Dataset(), "bible", workers=0)
