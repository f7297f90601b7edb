# Made from _async/__init__.py by tools/unasync.py: change that one.
"""The blocking client."""
