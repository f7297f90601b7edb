import { ConnectionError } from "./errors.js";
import { platform } from "./platform/node.js";

/** What a file or the input of a command can be made of. */
export type Data = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Told how much was sent or received, in bytes, and of how much, if that is known. */
export type Progress = (done: number, total: number | undefined) => void;

/** The chunks of a stream; who leaves the loop ends it. */
export async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // one that broke is ended already
  }
}

/** A whole stream; undefined: it has more than so many bytes. */
export async function joined(stream: ReadableStream<Uint8Array>, most: number): Promise<Uint8Array | undefined> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of chunksOf(stream)) {
    size += part.byteLength;
    if (size > most) {
      return undefined;
    }
    parts.push(part);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.byteLength;
  }
  return whole;
}

/** Passes a stream on and tells how far it is. */
export function counted(stream: ReadableStream<Uint8Array>, total: number | undefined, progress: Progress | undefined): ReadableStream<Uint8Array> {
  if (!progress) {
    return stream;
  }
  let done = 0;
  return stream.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, to) {
        done += chunk.byteLength;
        progress(done, total);
        to.enqueue(chunk);
      },
    }),
  );
}

/** What a tar ends with, in bytes of zeros. */
const tarEnd = 1024;

/**
 * Passes an archive on, and fails where a tar has no end: what is between may end an answer
 * that broke off as if it were whole. Who unpacks sees that where a file is cut, or a tar.gz,
 * but not where a tar is cut between two.
 */
export function wholeArchive(stream: ReadableStream<Uint8Array>, gzip: boolean | undefined): ReadableStream<Uint8Array> {
  if (gzip) {
    return stream;
  }
  let zeros = 0; // at the end of what came
  return stream.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, to) {
        let at = chunk.byteLength;
        while (at > 0 && chunk.byteLength - at < tarEnd && chunk[at - 1] === 0) {
          at--;
        }
        zeros = chunk.byteLength - at + (at === 0 ? zeros : 0);
        to.enqueue(chunk);
      },
      flush() {
        if (zeros < tarEnd) {
          throw new ConnectionError("The archive did not come whole: its end is missing");
        }
      },
    }),
  );
}

/** What fetch sends for data. */
export async function bodyOf(data: Data, progress?: Progress): Promise<BodyInit> {
  const whole = wholeOf(data);
  if (whole && !progress) {
    return whole;
  }
  const stream = counted(whole ? whole.stream() : streamOf(data as Stream), whole?.size, progress);
  return platform.streamsUploads ? stream : new Response(stream).blob();
}

type Stream = ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Data that is there as a whole; undefined: it is a stream. */
function wholeOf(data: Data): Blob | undefined {
  if (data instanceof Blob) {
    return data;
  }
  if (typeof data === "string" || data instanceof ArrayBuffer || ArrayBuffer.isView(data)) {
    return new Blob([data as BlobPart]);
  }
  return undefined;
}

function streamOf(data: Stream): ReadableStream<Uint8Array> {
  if (data instanceof ReadableStream) {
    return data;
  }
  const iterator = data[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(to) {
      const { done, value } = await iterator.next();
      if (done) {
        to.close();
      } else {
        to.enqueue(value);
      }
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

/** Bytes as base64. */
export function toBase64(bytes: Uint8Array): string {
  const step = 0x8000; // more arguments than this are too many for some engines
  let text = "";
  for (let at = 0; at < bytes.length; at += step) {
    text += String.fromCharCode(...bytes.subarray(at, at + step));
  }
  return btoa(text);
}

/** The bytes of a base64 text. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
