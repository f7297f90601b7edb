/** One event of a stream of server-sent events. */
export interface ServerEvent {
  /** message, if it has no name. */
  name: string;
  data: string;
  /** The last id that the stream has told, up to this event. */
  id: string;
}

/** Bounds one event, in characters: what a server may let a client hold. */
const maxEvent = 4 << 20;

/**
 * Reads server-sent events, by the rules of the HTML standard: lines end in LF, CR or
 * CRLF, comments and fields that nobody knows are passed over, data may have many
 * lines, and an event that is cut off is none.
 */
export async function* readEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  const decoder = new TextDecoder(); // it takes a byte order mark away
  const event = new EventBuilder();
  let rest: string[] = []; // of a line that is not whole
  let held = 0;
  let halfEnd = false; // the last line ended in a CR: an LF behind it belongs to it
  for await (const chunk of chunks) {
    let text = decoder.decode(chunk, { stream: true });
    if (text === "") {
      continue;
    }
    if (halfEnd && text.startsWith("\n")) {
      text = text.slice(1);
    }
    halfEnd = text.endsWith("\r");
    const lines = text.split(/\r\n|\n|\r/);
    const last = lines.pop() ?? "";
    if (lines.length > 0) {
      lines[0] = rest.join("") + lines[0];
      rest = [];
      held = 0;
    }
    rest.push(last);
    held += last.length;
    if (held > maxEvent) {
      throw new RangeError("the server sent an event that is too long");
    }
    for (const line of lines) {
      const whole = event.line(line);
      if (whole) {
        yield whole;
      }
    }
  }
}

class EventBuilder {
  private name = "";
  private data: string[] = [];
  private size = 0;
  private id = "";

  /** Takes a line; the empty one ends an event. */
  line(line: string): ServerEvent | undefined {
    if (line === "") {
      return this.end();
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    switch (field) {
      case "event":
        this.name = value;
        break;
      case "id":
        this.id = value.includes("\0") ? this.id : value;
        break;
      case "data":
        this.data.push(value);
        this.size += value.length;
        if (this.size > maxEvent) {
          throw new RangeError("the server sent an event that is too long");
        }
    }
    return undefined;
  }

  private end(): ServerEvent | undefined {
    const event = { name: this.name || "message", data: this.data.join("\n"), id: this.id };
    const isOne = this.data.length > 0;
    this.name = "";
    this.data = [];
    this.size = 0;
    return isOne ? event : undefined;
  }
}
