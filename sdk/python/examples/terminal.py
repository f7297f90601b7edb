"""Types into a shell on a terminal."""

from agentbox import Client

with Client() as client, client.create(memory="256m") as box:
    with box.terminal("sh", cols=80, rows=24) as terminal:

        def until(text: str) -> None:
            seen = b""
            while text.encode() not in seen:
                piece = terminal.read(timeout=60)
                print(piece.decode(errors="replace"), end="")
                seen += piece

        terminal.write("stty size\n")
        until("24 80")
        terminal.resize(132, 43)
        terminal.write("stty size\n")
        until("43 132")
        terminal.write("exit\n")
        for piece in terminal:
            print(piece.decode(errors="replace"), end="")
        assert terminal.result is not None
        print(f"ended with {terminal.result.exit_code}")
