"""The basis-aware test: which improbable tokens a model's own geometry proves possible."""
