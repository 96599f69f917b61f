from unspool.lab import documents


def test_every_document_is_said_with_its_section_and_paper():
    assert str(documents.lecture("Training")).endswith("2024), Training")
    assert documents.problems("4", "bengio2003neural").papers == (
        "mcallester2020problems",
        "bengio2003neural",
    )
    assert documents.kerbs("lemma").papers == ("miao2019kernelized",)
    assert documents.degeneration("§3").papers == ("finlayson2024closing",)
