"""The words of the program: ids, label sets, jobs, runners, pools, verdicts, evidence, reasons, remedies.

Owns frozen, slotted dataclasses and enums with named groups, and the rules that are facts about a single value.
Must not import anything but a short list of standard modules (`tests/laws/test_purity.py`), nor any other room.
"""
