from unspool.lab import claim


def test_sources_have_a_section_and_papers():
    assert str(claim.lecture("Training")).endswith("2024), Training")
    assert claim.problems("4", "bengio2003neural").papers == (
        "mcallester2020problems",
        "bengio2003neural",
    )
    assert claim.kerbs("lemma").papers == ("miao2019kernelized",)
    assert claim.degeneration("§3").papers == ("finlayson2024closing",)
