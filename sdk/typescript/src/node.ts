// What only Node has: gRPC over HTTP/2.
import type { Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { platform } from "./platform/node.js";
import { bearer } from "./sandbox.js";

/**
 * Carries the calls of SandboxService, or of a Sandbox, by gRPC over HTTP/2. The key is
 * AGENTBOX_API_KEY of the environment unless one is given.
 */
export function grpcTransport(baseUrl = "http://localhost:50051", apiKey?: string): Transport {
  const key = apiKey ?? platform.env("AGENTBOX_API_KEY");
  return createGrpcTransport({ baseUrl, interceptors: key ? [bearer(key)] : [] });
}
