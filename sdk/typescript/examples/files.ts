// Files: bytes, texts, progress, archives, local files.
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client } from "@agentbox/client";
import { download, upload } from "@agentbox/client/node";

const client = new Client();
await using box = await client.create();
const local = await mkdtemp(join(tmpdir(), "files-"));

await box.files.write("project/main.py", "print('hello')\n");
await box.files.write("project/data.bin", new Uint8Array([0, 255]));
for await (const file of box.files.list("project")) {
  console.log(file.mode, file.size, file.path);
}
console.log(await box.files.readText("project/main.py"));

await writeFile(join(local, "large"), Buffer.alloc(5 << 20));
await upload(box, join(local, "large"), "large", { onProgress: (done, total) => done === total && console.log("sent", done) });
await download(box, "large", join(local, "back"));

const archive = await box.files.readArchive("project", { gzip: true });
await box.files.writeArchive("copy", archive, { gzip: true });
console.log((await box.exec("python3 copy/main.py")).stdout);
console.log("done");
