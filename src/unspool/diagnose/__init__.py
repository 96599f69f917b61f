"""Diagnoses: why text degenerates, measured on a model and a text of one's own."""
