"""What Schemathesis must know of this API; internal/e2e/schemathesis_test.go runs it."""

import json

import schemathesis

# The test keeps sandboxes of these names running.
BOXES = ["a", "b"]
# Parameters with which an answer goes on until the client leaves, and what they may be.
ENDLESS = {"follow": {"false", "0", "no"}, "stream": {"false", "0", "no", "stdout", "stderr", "both"}}


@schemathesis.hook
def filter_case(context, case):
    query = case.query or {}
    return all(str(query[name]).lower() in finite for name, finite in ENDLESS.items() if name in query)


@schemathesis.hook
def before_call(context, case, kwargs):
    # Most of the API is behind the names of sandboxes that are there.
    given = case.path_parameters
    if given and "id" in given and "/sandboxes/" in case.operation.path and sum(map(ord, str(given["id"]))) % 8:
        given["id"] = BOXES[len(str(given["id"])) % len(BOXES)]


@schemathesis.serializer("application/x-tar", "application/gzip", "application/zip", "application/octet-stream")
def as_bytes(context, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode(errors="replace")
