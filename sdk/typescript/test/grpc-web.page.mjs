// A page that calls the service by grpc-web, the client that protoc's plugin for the web
// makes code for: its runtime with the messages of this package.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { GrpcWebClientBase, MethodDescriptor, MethodType } from "grpc-web";

import { SandboxService } from "@agentbox/client";

/** The calls of a server, by their names in TypeScript, in one of grpc-web's formats. */
function service({ url, apiKey }, format) {
  const client = new GrpcWebClientBase({ format });
  const calls = {};
  for (const method of SandboxService.methods) {
    const path = `/${SandboxService.typeName}/${method.name}`;
    const streams = method.methodKind === "server_streaming";
    const descriptor = new MethodDescriptor(
      path, streams ? MethodType.SERVER_STREAMING : MethodType.UNARY, Object, Object,
      (message) => toBinary(method.input, message), (bytes) => fromBinary(method.output, bytes),
    );
    calls[method.localName] = (fields) => {
      const metadata = { deadline: String(Date.now() + 60_000), ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}) };
      const call = streams ? client.serverStreaming : client.unaryCall;
      return call.call(client, url + path, create(method.input, fields), metadata, descriptor);
    };
  }
  return calls;
}

const told = (call) => call.then(() => "nothing", ({ code, message }) => `${code} ${message}`);

/** The unary calls, in either format. */
async function unary(server, format) {
  const calls = service(server, format);
  const { session } = await calls.createSession({ allowedHosts: ["localhost"] });
  const { sessionId } = session;
  try {
    const { stdout, exitCode } = await calls.exec({ sessionId, command: "echo hello; exit 3" });
    const text = "ü".repeat(100_000);
    const { success } = await calls.writeFile({ sessionId, path: "f", content: text, mode: "w" });
    const same = (await calls.readFile({ sessionId, path: "f" })).content === text;
    const listed = (await calls.listSessions({})).sessions.some((one) => one.sessionId === sessionId);
    return { stdout, exitCode, success, same, listed, unknown: await told(calls.getSession({ sessionId: "none" })) };
  } finally {
    await calls.destroySession({ sessionId });
  }
}

/** A stream whose command waits until its first message was read. */
async function stream(server) {
  const calls = service(server, "text");
  const { session } = await calls.createSession({ allowedHosts: ["localhost"] });
  const { sessionId } = session;
  try {
    const came = [];
    const status = await new Promise((resolve, reject) => {
      const messages = calls.execStream({ sessionId, command: "echo one; until [ -e go ]; do sleep 0.05; done; echo two >&2; exit 4" });
      messages.on("data", ({ type, data, exitCode }) => {
        came.push(`${type} ${data || exitCode}`);
        if (data === "one\n") {
          calls.writeFile({ sessionId, path: "go", content: "", mode: "w" }).catch(reject);
        }
      });
      messages.on("error", reject);
      messages.on("status", ({ code }) => resolve(code));
    });
    return { came, status };
  } finally {
    await calls.destroySession({ sessionId });
  }
}

/** How a call is refused. */
const refused = (server) => told(service(server, "text").listSessions({}));

Object.assign(globalThis, { unary, stream, refused });
