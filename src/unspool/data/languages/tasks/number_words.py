"""Between digits and English words for a number: "427" ↔ "four hundred twenty-seven".

    n = 1000·thousands + rest,   each part = 100·hundreds + 10·tens + ones

American style, without "and". How many digits a number has is drawn first, so that short ones are as frequent
as long ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SMALL = {word: number for number, word in enumerate(ONES)} | {
    word: 10 * number for number, word in enumerate(TENS, start=2)
}


@dataclass(frozen=True)
class NumberWords:
    """Numbers below a million."""

    digits: int = 6
    """The most of a number, 1 to 6."""
    to_words: bool = False
    """Whether digits are the source, and words the target."""

    def __post_init__(self) -> None:
        if isinstance(self.digits, bool) or self.digits not in range(1, 7):
            raise ValueError(f"digits is {self.digits!r}; numbers have 1 to 6 digits")

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        digits = random.randint(1, self.digits)
        number = random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
        both = spelled(number), str(number)
        return both[::-1] if self.to_words else both

    def truth(self, source: str) -> str:
        """The target."""
        if not self.to_words:
            return str(counted(source))
        if not (source.isascii() and source.isdigit() and len(source) <= 6):
            raise ValueError(f"{source!r} is no number below a million: write its digits alone, as in 427")
        return spelled(int(source))


def spelled(number: int) -> str:
    """A number from 0 to 999,999 in words."""
    if number < 20:
        return ONES[number]
    for unit, name in ((1000, "thousand"), (100, "hundred")):
        if number >= unit:
            head, rest = divmod(number, unit)
            return f"{spelled(head)} {name}" + (f" {spelled(rest)}" if rest else "")
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")


def counted(words: str) -> int:
    """The number that words spell."""
    thousands = part = 0
    for word in words.replace("-", " ").split():
        if word == "thousand":
            thousands, part = 1000 * part, 0
        elif word == "hundred":
            part *= 100
        else:
            part += SMALL.get(word, 0)
    # Words in a wrong order add up, too: only what is spelled as `spelled` does it is a number.
    number = thousands + part
    if not 0 <= number < 1_000_000 or spelled(number) != words:
        raise ValueError(
            f"{words!r} spells no number below a million: write it as in four hundred twenty-seven"
        )
    return number
