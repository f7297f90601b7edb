"""Shows the output of a command as it comes."""

import sys

from agentbox import Client

SCRIPT = "for i in 1 2 3; do echo step $i; sleep 0.2; done; echo a warning >&2"

with Client() as client, client.create(memory="256m") as box:
    for event in box.stream(SCRIPT):
        if event.type == "stdout":
            print(event.text, end="", flush=True)
        elif event.type == "stderr":
            # Also to standard output, so that all of it stands in one place.
            print(event.text, end="", file=sys.stdout, flush=True)
        else:
            print(f"ended with {event.result.exit_code} after {event.result.duration:.1f} s")

    # A command that waits for input.
    stream = box.stream("while read line; do echo got $line; done", open_stdin=True)
    stream.process().write("one\ntwo\n")
    stream.process().close_stdin()
    for event in stream:
        if event.type == "stdout":
            print(event.text, end="")
