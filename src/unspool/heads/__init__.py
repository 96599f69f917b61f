"""Output layers: hidden vectors to normalised log-probabilities."""
