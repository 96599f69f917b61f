"""The four documents whose claims are measured here; a claim adds the section."""

from __future__ import annotations

from unspool.lab.claim import Source

LECTURE = "He He, Neural Sequence Generation (lecture, New York University, 2024)"
PROBLEMS = "McAllester, Problems for Language Modeling, Translation and Attention"
KERBS = "Miao et al. 2019, appendix of Kernelized Bayesian Softmax for Text Generation"
DEGENERATION = "Finlayson et al. 2024, Closing the Curious Case of Neural Text Degeneration"


def lecture(section: str, *papers: str) -> Source:
    """He He's slides."""
    return Source(LECTURE, section, papers)


def problems(section: str, *papers: str) -> Source:
    """McAllester's problems, with their solutions."""
    return Source(PROBLEMS, section, ("mcallester2020problems", *papers))


def kerbs(section: str, *papers: str) -> Source:
    """The appendix on kernelized senses."""
    return Source(KERBS, section, ("miao2019kernelized", *papers))


def degeneration(section: str, *papers: str) -> Source:
    """Why truncation works, and the basis-aware test."""
    return Source(DEGENERATION, section, ("finlayson2024closing", *papers))
