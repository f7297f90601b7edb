"""Generated from proto/sandbox/v1: ``make proto`` makes it anew."""
