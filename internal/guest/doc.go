// Package guest is the protocol between the host and the agent in a sandbox:
// what both ends share. Package guest/agent serves it inside, package
// guest/client speaks it on the host.
//
// # Stream
//
// A back end gives one duplex byte stream to the agent (runtime.Runtime.Attach).
// On a donated stream (file descriptor 3 of the first process) the host first
// sends the sandbox's key once after each start and each restore; on an adopted
// stream both ends prove that they hold it (SendKey, ProveHost).
//
// # Session
//
// The host speaks first: a Hello message, the guest answers HelloReply, each as
// a 4-byte big-endian length (at most MaxHello) and the protobuf message. On
// end-of-file, or on a Hello with a higher epoch on any stream, the guest drops
// the old session. It never stops because a session ends: commands run on as
// their on-disconnect policy says.
//
// # Versions
//
// Hello offers the versions that the host speaks and the answer takes one; where there is
// none in common the agent says which it has, and the host reports that. A running sandbox
// keeps the agent that it was started with, so that what a release speaks stays as it is:
// a bound that grows or a frame that means something else is a new version, of which the
// host goes on to speak the one before. What the other end may leave alone is none: a new
// call, a new path, a frame that is skipped by who does not know it. Version 1 is what the
// first release speaks, with the bounds in this package. Builds from before it may have
// agents that take no frame of data above MaxFrame, which Hello does not tell: connections
// that carry much break in their sandboxes until those are stopped and started.
//
// # Multiplexing
//
// After the answer the stream carries yamux; the host is its client. Either end
// opens streams, and on each of them the opener speaks HTTP/1.1:
//
//   - Unary calls: POST /agentbox.guest.v1.Guest/<Method> with a protobuf message
//     as the body and in the answer (Content-Type application/proto). Errors are
//     a 4xx or 5xx answer with an Error message.
//   - File bodies: GET and PUT /files?…, GET and PUT /tar?… with the bytes as the
//     body, so that they stream with back-pressure. FileHeader describes a file,
//     SkippedTrailer tells what an archive lacks.
//   - Changes of files: GET /watch?… whose answer is a body of frames without end.
//   - A body that breaks off ends in the trailer ErrorTrailer, so that it can't
//     be taken for a whole one.
//   - Raw streams: POST /exec, POST /attach with "Upgrade: agentbox-frames"; after
//     "101 Switching Protocols" both ends send frames.
//   - Connections to ports: POST /ports, upgraded in the same way, carries a
//     multiplexer of their own (NewPortMux), in which the host opens streams: POST
//     /port?port=N&id=ID, upgraded when the guest has connected, with a [Duplex]
//     at each end; DELETE /port?id=ID ends one at once, whatever waits in it.
//   - Connections to the outside: POST /tunnel and POST /tunnel/wide, upgraded in the
//     same way, carry a multiplexer each, too ([Tunnel]): small windows for many
//     connections, wide ones for a few. In it the guest opens streams: each begins with a
//     [TunnelHead], then both ends send bytes as in a Duplex: what a program says to
//     the proxy at 127.0.0.1:3128, or to the address that it was told for a name. A
//     stream that asks whether a name may be resolved is answered with one byte.
//     Resets are told in a stream of their own, which the host opens first. The
//     guest reads nothing of what programs say; the host decides everything. A new
//     session, and a restore, end all of them; the proxy stays and refuses until
//     there is a tunnel again.
//   - Streams that the guest opens: the same, in the other direction: the host is
//     the HTTP server (probes).
//
// # Frames
//
// A frame is a type (1 byte), a length (4 bytes, big-endian, at most MaxFrame, of data
// of a connection MaxData) and that many bytes; see the Frame constants.
//
// # Trust
//
// The host bounds every read from the guest in size and time. Limits that the
// guest enforces are for good answers; the host's limits hold whatever the
// guest does. A guest that lies hurts itself only.
package guest
