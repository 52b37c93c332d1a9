"""The simulator: the real core against a modelled forge, runtime, operator and clock, in virtual time.

One seed is one history, bit for bit. It owns the models, the monitor that judges from the truth, and the
driver that stands where the shell stands; it must not import adapters or app, read a clock, or sleep.
"""
