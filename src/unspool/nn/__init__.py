"""Building blocks of models: attention, positions, norms, feed-forward networks."""
