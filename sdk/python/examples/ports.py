"""Reaches a server that runs in a sandbox."""

import time
import urllib.request

from agentbox import Client

with Client() as client, client.create(memory="256m") as box:
    box.files.write("index.html", "hello through a port\n")
    box.background("python3 -m http.server 8000")
    while not any(p.port == 8000 for p in box.ports()):
        time.sleep(0.1)

    # A port of this machine that leads to it, wherever the agentbox server is.
    with box.forward(8000) as local:
        with urllib.request.urlopen(f"http://{local.host}:{local.port}/") as answer:
            print(answer.read().decode(), end="")

    # Or one connection, without a local port.
    with box.connect(8000) as connection:
        connection.write(b"GET / HTTP/1.0\r\n\r\n")
        print(b"".join(connection).decode().splitlines()[0])

# A port that the server's machine offers for as long as the sandbox runs.
with Client() as client, client.create(memory="256m", ports=[8000]) as box:
    print(f"on the server's machine it is 127.0.0.1:{box.info.ports[0].host}")
