"""Assembled models. Each one is a StepModel, so that every decoder runs on it."""
