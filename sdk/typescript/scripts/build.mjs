// Builds dist/esm with tsc, and dist/cjs of the same sources: their types are the same.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, readdirSync, rmSync, writeFileSync } from "node:fs";

import { build } from "esbuild";

process.chdir(new URL("..", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "."], { stdio: "inherit" });
const sources = readdirSync("src", { recursive: true }).filter((name) => name.endsWith(".ts"));
await build({ entryPoints: sources.map((name) => `src/${name}`), outdir: "dist/cjs", format: "cjs", platform: "node", target: "es2022", logLevel: "warning" });
cpSync("dist/esm", "dist/cjs", { recursive: true, filter: (name) => !name.endsWith(".js") });
writeFileSync("dist/cjs/package.json", '{"type":"commonjs"}\n');
copyFileSync("../../LICENSE", "LICENSE");
