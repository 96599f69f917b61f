"""What happens where nothing is said: the same in Python and on the command line."""

MODEL, SECOND_MODEL = "smollm2", "bible"
"""The model that speaks when none is named: the first where it is installed, else the built-in second."""
DECODER = "Sample(Temperature(0.8), TopP(0.95))"
"""How text is decoded when no search is given."""
NEW_TOKENS = 128
"""The most tokens of a text when no limit is given."""
CHAT_TOKENS = 512
"""The most tokens of an answer in a conversation."""
ROWS = 256
"""How many rows (prompts times answers, or times the width of a beam) are decoded side by side at most."""
MOST_SAMPLES = 1_000_000
"""The most answers to one prompt (`n`): all of them are kept until the call returns."""
