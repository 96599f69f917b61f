"""Languages whose truth is known, and tiny tasks with one right answer each."""

from typing import Any

from unspool.data.known_languages.agreement import Agreement
from unspool.data.known_languages.known_language import FullSupport, KnownLanguage
from unspool.data.known_languages.sense_chain import SenseChain
from unspool.data.known_languages.zipf_markov import ZipfMarkov

LANGUAGES: dict[str, type[KnownLanguage[Any]]] = {
    "agreement": Agreement,
    "senses": SenseChain,
    "zipf_markov": ZipfMarkov,
}

__all__ = ["LANGUAGES", "Agreement", "FullSupport", "KnownLanguage", "SenseChain", "ZipfMarkov"]
