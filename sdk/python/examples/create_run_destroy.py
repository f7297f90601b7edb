"""Makes a sandbox, runs commands in it and destroys it."""

from agentbox import Client, SandboxGone

with Client() as client:
    with client.create(memory="256m", lifetime=600) as box:
        print(f"{box.short_id} runs {box.info.image}")

        result = box.exec("python3 -c 'print(6*7)'")
        print(result.stdout, end="")

        # A command that fails is a result.
        result = box.exec(["sh", "-c", "echo sorry >&2; exit 3"])
        print(f"exit code {result.exit_code}: {result.stderr}", end="")

        # One that takes too long is killed, with all that it started.
        result = box.exec("sleep 600", timeout=1)
        print(f"timed out: {result.timed_out}")

    # The sandbox went with its block.
    try:
        client.get(box.id)
    except SandboxGone as e:
        print(f"gone: {e.reason}")
