"""A client of sandbox.v1 with its stubs, and the sandbox that an `agentbox serve --no-auth` of this machine makes for it."""

import grpc

from sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc


def main():
    channel = grpc.insecure_channel("localhost:50051")
    stub = sandbox_pb2_grpc.SandboxServiceStub(channel)

    session = stub.CreateSession(sandbox_pb2.CreateSessionRequest()).session
    print("session", session.session_id)
    print("container", session.container_id)
    print("hosts", len(session.allowed_hosts))

    def run(command):
        return stub.Exec(
            sandbox_pb2.ExecRequest(
                session_id=session.session_id, command=command, timeout=30, workdir="/workspace"
            )
        )

    result = run("python3 --version")
    print("version", result.exit_code, result.stdout.strip())

    written = stub.WriteFile(
        sandbox_pb2.WriteFileRequest(
            session_id=session.session_id, path="hello.py", content="print('Hello from script!')\n", mode="w"
        )
    )
    print("written", written.success)
    read = stub.ReadFile(sandbox_pb2.ReadFileRequest(session_id=session.session_id, path="hello.py"))
    print("read", read.content.strip())
    print("ran", run("python3 hello.py").stdout.strip())
    print("kernel", run("uname -r").stdout.strip())

    for message in stub.ExecStream(
        sandbox_pb2.ExecStreamRequest(session_id=session.session_id, command="echo streamed", workdir="/workspace")
    ):
        print(message.type, message.data.strip(), message.exit_code if message.HasField("exit_code") else "")

    sessions = stub.ListSessions(sandbox_pb2.ListSessionsRequest()).sessions
    print("listed", session.session_id in [s.session_id for s in sessions])
    gone = stub.DestroySession(sandbox_pb2.DestroySessionRequest(session_id=session.session_id))
    print("destroyed", gone.success)
    try:
        stub.GetSession(sandbox_pb2.GetSessionRequest(session_id=session.session_id))
    except grpc.RpcError as e:
        print("then", e.code().name, e.details())


if __name__ == "__main__":
    main()
