"""English for the built-in model of prose: openings to go on from, and passages that a reader would let pass.

All of it was written for this file, in the manner of the model's training text, which holds none of it.
"""

from __future__ import annotations

OPENINGS: list[str] = [
    "In the third year of his reign, the king",
    "Now the men of the city came out",
    "He said to his servants, Go up to",
    "The river was full, and the people could not",
    "When the shepherd had found his sheep, he",
    "And it happened in the evening that the woman",
    "They took bread and water, and went",
    "Behold, a man stood by the gate and",
    "The words of the prophet were written in",
    "After these things there was a great",
    "Then the elders answered the young man and",
    "His father gave him the field which",
    "Don't be afraid of the night, for",
    "The children came to the house of their",
    "She rose early in the morning and",
    "In those days the land had rest, and",
]

PASSAGES: list[str] = [
    "The king sent messengers through all the land, to every town and village, saying, Let each man bring "
    "his grain to the storehouse before winter. So the people brought it, some on their backs and some on "
    "donkeys.",
    "A certain man had a vineyard on a hill by the sea. He built a wall around it, dug a well, and gave it "
    "to his two sons. The elder worked in the heat of the day, but the younger slept under the fig tree.",
    "When the storm had passed, the sailors looked for the shore, but they saw nothing except water. Then "
    "the oldest of them said, Throw the cargo into the sea, and keep only the bread.",
    "The woman took oil and flour, and made cakes for the travelers, for she had seen them coming from far "
    "away. They ate in her house that night, and in the morning they blessed her.",
    "My son, listen to the words of your mother, and don't forget what your father taught you. A lamp is "
    "good in the dark, but a wise friend is better than a lamp.",
    "The elders sat in the gate and judged between the two brothers. One said, The field is mine, for I "
    "plowed it. The other said, It is mine, for our father gave it to me before he died.",
    "In the morning the priest opened the doors of the temple and lit the lamps. Many people were waiting "
    "in the courtyard, and each of them had brought an offering of wheat or oil.",
    "They came to a valley where there was no water, and the animals were weak. Then a young man climbed "
    "the rock and saw green grass on the other side, and he called down to the others.",
]
