// The package as its users get it: packed, installed in an empty project, imported and
// required, typed, and the examples of its README run.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";

import { transform } from "esbuild";

import { keyed, open } from "./server.mjs";

const execute = promisify(execFile);
const tsc = resolve("node_modules/typescript/bin/tsc");

test("the types are those of docs/openapi.json", async () => {
  await execute(process.execPath, ["scripts/types.mjs", "--check"]);
});

test("the lock file names no place to download from", async () => {
  const lock = await readFile("package-lock.json", "utf8");
  assert.ok(!lock.includes('"resolved"') && !/https?:\/\/registry/.test(lock));
});

describe("the packed package", () => {
  // A directory that is given is kept, with what was installed in it.
  const kept = process.env.AGENTBOX_TEST_PROJECT;
  let project, sum;
  const noted = (name) => readFile(join(project, name), "utf8").catch(() => "");
  before(async () => {
    project = kept ?? (await mkdtemp(join(tmpdir(), "agentbox-project-")));
    await mkdir(project, { recursive: true });
    const tarball = await pack(project);
    sum = createHash("sha256").update(await readFile(tarball)).digest("hex");
    if ((await noted("installed")) !== sum) {
      await install(project, tarball);
      await writeFile(join(project, "installed"), sum);
    }
  });
  after(() => (kept ? undefined : rm(project, { recursive: true, force: true })));

  const run = (name, env = {}) => execute(process.execPath, [name], { cwd: project, env: { ...process.env, ...env }, timeout: 300_000 });

  test("it is imported and required", async () => {
    const use = `
      const sandbox = new Sandbox();
      if (!(new NotFound("x") instanceof Error) || sandbox.sessionId !== null || !SandboxService.method.exec) throw new Error("it is not whole");
      console.log(typeof Client, typeof grpcTransport, typeof forward);`;
    await writeFile(join(project, "use.mjs"), `import { Client, NotFound, Sandbox, SandboxService } from "@agentbox/client"; import { forward, grpcTransport } from "@agentbox/client/node";${use}`);
    await writeFile(join(project, "use.cjs"), `const { Client, NotFound, Sandbox, SandboxService } = require("@agentbox/client"); const { forward, grpcTransport } = require("@agentbox/client/node");${use}`);
    for (const name of ["use.mjs", "use.cjs"]) {
      assert.equal((await run(name)).stdout, "function function function\n", name);
    }
  });

  test("its types are good in every kind of project", async () => {
    if ((await noted("typed")) === sum) {
      return; // they were, in this project
    }
    const uses = await readFile("test/types.txt", "utf8");
    const kinds = {
      node16: { options: { module: "node16", moduleResolution: "node16", types: ["node"] }, files: ["esm.mts", "cjs.cts"] },
      bundler: { options: { module: "es2022", moduleResolution: "bundler", types: [] }, files: ["bundled.ts"] },
    };
    for (const [kind, { options, files }] of Object.entries(kinds)) {
      await Promise.all(files.map((name) => writeFile(join(project, name), uses)));
      const compilerOptions = { target: "es2022", strict: true, noEmit: true, typeRoots: [resolve("node_modules/@types")], ...options };
      await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files }));
      await execute(process.execPath, [tsc, "-p", project]).catch((error) => assert.fail(`${kind}:\n${error.stdout}`));
    }
    await writeFile(join(project, "typed"), sum);
  });

  test("the examples of the README run", keyed.needed, async () => {
    const examples = [...(await readFile("README.md", "utf8")).matchAll(/```ts\n(.*?)```/gs)].map(([, text]) => text);
    assert.ok(examples.length >= 5);
    for (const [i, example] of examples.entries()) {
      await writeTypeScript(`readme-${i}.mjs`, example);
      await run(`readme-${i}.mjs`, environment()).catch((error) => assert.fail(`example ${i}:\n${example}\n${error.stdout}${error.stderr}`));
    }
  });

  const environment = () => ({ AGENTBOX_URL: keyed.url, AGENTBOX_API_KEY: keyed.key });

  for (const name of ["streaming", "files"]) {
    test(`the example ${name} runs`, keyed.needed, async () => {
      await writeTypeScript(`${name}.mjs`, await readFile(`examples/${name}.ts`, "utf8"));
      const { stdout } = await run(`${name}.mjs`, environment());
      assert.match(stdout, /^done$/m);
    });
  }

  for (const [name, want] of Object.entries({
    grpc: /^session [0-9a-f-]{36}\ncontainer [0-9a-f]{12}\nhosts 8\nversion 0 Python 3\..*\nwritten true\nread print\('Hello from script!'\)\nran Hello from script!\nkernel .*gvisor.*\nstdout streamed \nexit {2}0\nlisted true\ndestroyed true\n$/,
    sandbox: /^session [0-9a-f-]{36}\ncontainer [0-9a-f]{12}\nhosts 8\nversion 0 Python 3\..*\nread print\('Hello from script!'\)\nran Hello from script!\nkernel .*gvisor.*\nstdout streamed \nexit {2}0\ndestroyed true\n$/,
  })) {
    test(`${name === "grpc" ? "C2" : "C1"} the example ${name} runs as it is`, open.needed, async () => {
      // The port is the machine's to choose, since several servers live on it.
      const text = await readFile(`examples/${name}.ts`, "utf8");
      assert.ok(name !== "grpc" || text.includes('baseUrl: "http://localhost:50051"'));
      await writeTypeScript(`${name}.mjs`, text.replaceAll(/localhost:50051/g, new URL(open.url).host));
      assert.match((await run(`${name}.mjs`, { AGENTBOX_API_KEY: "" })).stdout, want);
    });
  }

  async function writeTypeScript(name, text) {
    const { code } = await transform(text, { loader: "ts", target: "node18", format: "esm" });
    await writeFile(join(project, name), code);
  }
});

/** Packs the package as it was built. */
async function pack(to) {
  const { stdout } = await execute("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", to]);
  return join(to, JSON.parse(stdout)[0].filename);
}

/** Installs the packed package in a project that has nothing else. */
async function install(project, tarball) {
  await rm(join(project, "node_modules"), { recursive: true, force: true });
  await cp(".npmrc", join(project, ".npmrc"));
  await writeFile(join(project, "package.json"), '{"name":"empty","private":true}');
  await execute("npm", ["install", "--prefer-offline", "--no-package-lock", tarball], { cwd: project });
}
