"""The words of the program: ids, label sets, jobs, runners, pools, verdicts, evidence, reasons, remedies.

Owns frozen values and enums with named groups, and the rules that are facts about one value.
Must not import any other room, nor anything but msgspec and a short list of standard modules that a test keeps.
"""
