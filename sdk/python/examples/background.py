"""Starts a command that runs on by itself, and comes back to it."""

from agentbox import Client

SCRIPT = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done"

with Client() as client, client.create(memory="256m") as box:
    process = box.background(SCRIPT)
    print(f"started {process.exec_id}: {process.info().state}")

    # Follow it for a while. Leaving the block does not end it.
    seen = 0
    with process.attach() as stream:
        for event in stream:
            if event.type == "stdout":
                print(event.text, end="")
                seen = event.offset + len(event.data)
            if seen > 20:
                break

    # Later, or in another program: by its exec_id, from where it was.
    again = box.process(process.exec_id)
    with again.attach(stdout_offset=seen) as stream:
        for event in stream:
            print("attached again:", event.type)
            break

    again.signal("TERM")
    result = again.wait(timeout=60)
    print(f"ended by signal {result.signal}, with {len(result.stdout)} characters of output")
