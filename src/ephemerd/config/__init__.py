"""The settings: the model, the defaults, where each value comes from, and errors that name the key to mend.

Owns TOML, the environment overlay and the reading of secret files. Must not know adapters or the app.
"""
