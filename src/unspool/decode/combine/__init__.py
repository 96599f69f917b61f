"""Models made of models: whatever comes out is a StepModel again."""
