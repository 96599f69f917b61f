"""One state for many: requests that are read side by side, and texts that begin alike."""
