"""The asynchronous client. The blocking one in ``_sync`` is made from it by ``tools/unasync.py``."""
