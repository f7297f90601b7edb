"""Lets a sandbox reach some hosts, installs a package and shows what was denied."""

from agentbox import Client

# "python" is what pip needs. Everything else is denied.
with Client() as client, client.create(memory="512m", network=["python"]) as box:
    result = box.packages.pip(["six"])
    print(f"pip: {result.exit_code}")
    if not result.ok:
        print(result.output)
    print(box.exec("python3 -c 'import six; print(six.__name__, six.__version__)'").output, end="")

    box.exec("curl -sS https://example.com/")
    for request in box.network.get().requests:
        print(f"denied: {request.host}:{request.port}")

    # The list can be changed while the sandbox runs.
    state = box.network.change(add=["example.com"])
    print("now allowed:", ", ".join(state.allow))
    for record in box.network.log(order="oldest"):
        print(f"{record.verdict}: {record.host}:{record.port} {record.reason}")

    print("without network:", box.network.set("none").mode)
