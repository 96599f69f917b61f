"""What holds a text to a grammar: the model's tokens as bytes, and how far each path has come."""
