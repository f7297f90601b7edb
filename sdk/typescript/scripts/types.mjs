// Writes src/types.ts, the types of the REST API, from docs/openapi.json: run by
// `npm run generate`. Names are those of TypeScript (exit_code is exitCode); what the
// API takes in several spellings has the one that TypeScript has.
import { readFileSync, writeFileSync } from "node:fs";

const document = JSON.parse(readFileSync(new URL("../../../docs/openapi.json", import.meta.url), "utf8"));
const schemas = document.components.schemas;

/** Names that mean something else in this package, or in every browser. */
const renamed = {
  Sandbox: "SandboxInfo",
  NewSandbox: "CreateOptions",
  UpdateInputBody: "Changes",
  Network: "NetworkPolicy",
  NewNetwork: "NewNetworkPolicy",
  Limits: "SandboxLimits",
  Command: "CommandRequest",
  Exec: "ExecInfo",
  Event: "SandboxEvent",
  File: "FileInfo",
  Found: "FoundFiles",
  Line: "FoundLine",
  Image: "ImageInfo",
  Key: "ApiKey",
  NewKey: "NewApiKey",
  Port: "ListeningPort",
  Volume: "VolumeInfo",
  Secret: "SecretInfo",
  Mount: "VolumeMount",
  SetSecretInputBody: "SecretOptions",
  SetNetworkBody: "SetNetworkOptions",
  ChangeNetworkBody: "ChangeNetworkOptions",
};

/** Lists of pages and bodies that methods build themselves are nobody's to name. */
const unnamed = /^List|InputBody$|^FormProblem$|^Problem$|^PortList$/;

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const nameOf = (ref) => {
  const name = ref.split("/").pop();
  return renamed[name] ?? name;
};

/** The fields whose names are the user's, and are left as they are. */
const maps = new Set();

/** Which schemas are answers: there a duration is a number. */
const answers = new Set();
function reach(schema) {
  if (schema?.$ref) {
    const name = schema.$ref.split("/").pop();
    if (!answers.has(name)) {
      answers.add(name);
      reach(schemas[name]);
    }
  } else if (schema && typeof schema === "object") {
    Object.values(schema).forEach(reach);
  }
}
for (const methods of Object.values(document.paths)) {
  for (const operation of Object.values(methods)) {
    Object.values(operation.responses ?? {}).forEach((response) => reach(response.content));
  }
}

function typeOf(schema, isAnswer) {
  if (!schema || Object.keys(schema).length === 0) return "unknown";
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.enum && schema.type === "string") return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  const any = schema.anyOf ?? schema.oneOf;
  if (any) {
    if (any.some((one) => one.type === "boolean")) return "boolean";
    const types = any.map((one) => typeOf(one, isAnswer));
    return [...new Set(isAnswer && types.includes("number") ? ["number"] : types)].join(" | ");
  }
  const types = [schema.type].flat().filter(Boolean);
  const nullable = isAnswer && types.includes("null") && !types.includes("array");
  const main = types.find((type) => type !== "null");
  if (!main) return types.length > 0 ? "null" : "unknown";
  return oneType(main, schema, isAnswer) + (nullable ? " | null" : "");
}

function oneType(type, schema, isAnswer) {
  switch (type) {
    case "array": {
      const item = typeOf(schema.items, isAnswer);
      return item.includes("|") ? `(${item})[]` : `${item}[]`;
    }
    case "object":
      return `Record<string, ${typeOf(schema.additionalProperties, true)}>`;
    case "integer":
    case "number":
      return "number";
    default:
      return type;
  }
}

function field(name, schema, required, isAnswer) {
  if (schema.type === "object" && schema.additionalProperties) maps.add(name);
  const words = typeOf(schema, isAnswer) === "boolean" ? schema.description?.replace(/^A boolean; also.*/, "") : schema.description;
  const doc = words ? `  /** ${words.replaceAll("*/", "*\\/")} */\n` : "";
  return `${doc}  ${camel(name)}${required ? "" : "?"}: ${typeOf(schema, isAnswer)};\n`;
}

let text = "// Made from docs/openapi.json by scripts/types.mjs: change that, and run `npm run generate`.\n";
for (const [name, schema] of Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1))) {
  if (unnamed.test(name) && !renamed[name]) continue;
  const isAnswer = answers.has(name);
  const fields = Object.entries(schema.properties ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const doc = schema.description ? `/** ${schema.description} */\n` : "";
  text += `\n${doc}export interface ${renamed[name] ?? name} {\n`;
  text += fields.map(([f, s]) => field(f, s, schema.required?.includes(f), isAnswer)).join("") + "}\n";
}
text += `\n/** Fields whose value has names of the user's own. */\nexport const maps: ReadonlySet<string> = new Set(${JSON.stringify([...maps].sort())});\n`;

const target = new URL("../src/types.ts", import.meta.url);
if (process.argv.includes("--check")) {
  if (readFileSync(target, "utf8") !== text) {
    console.error("src/types.ts is not what docs/openapi.json says: run npm run generate");
    process.exit(1);
  }
} else {
  writeFileSync(target, text);
}
