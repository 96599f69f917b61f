from hypothesis import settings

# A deadline measures the machine and whoever else uses it, not the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
