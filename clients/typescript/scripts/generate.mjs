// Generates the types of src/generated from the schemas of the server: docs/schema/openapi.json and docs/schema/ws/.
//
//   node scripts/generate.mjs            writes the files
//   node scripts/generate.mjs --check    fails if a file differs from what would be written
//
// It supports the parts of JSON Schema that these files use and fails on any other.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const SCHEMAS = join(HERE, "../../docs/schema");
const OUT = join(HERE, "src/generated");
const WIDTH = 110;

/** The frames that a worker receives. Their schemas are part of the program: it checks frames against them. */
const RECEIVED = [
  "envelope",
  "ack",
  "error",
  "cmd.dispatch",
  "cmd.cancel",
  "cmd.drain",
  "pkg.install",
  "pkg.uninstall",
  "middleware.next_response",
  "resource.read",
];

/** Keywords that restrict values and have no counterpart in a type. */
const CONSTRAINTS = new Set([
  "description", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems",
  "propertyNames", "maxProperties", "example", "default", "title", "not", "$id", "$schema",
]);
const SHAPES = new Set(["type", "properties", "required", "additionalProperties", "items", "oneOf", "enum", "const", "$ref"]);

const PRIMITIVES = { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" };

function comment(text, indent) {
  if (!text) return "";
  const words = text.replaceAll("*/", "*\\/").split(/\s+/).filter(Boolean);
  const lines = [];
  for (const word of words) {
    const last = lines.at(-1);
    if (last !== undefined && indent.length + last.length + word.length + 5 <= WIDTH) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join("")}${indent} */\n`;
}

function union(types) {
  const unique = [...new Set(types)];
  const known = unique.includes("unknown") ? ["unknown"] : unique;
  return known.filter((type) => type !== "null").concat(known.includes("null") ? ["null"] : []).join(" | ");
}

function propertyName(name) {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

function objectType(schema, indent) {
  const properties = Object.entries(schema.properties ?? {});
  const extra = schema.additionalProperties;
  if (properties.length === 0) {
    return typeof extra === "object" ? `Record<string, ${typeOf(extra, indent)}>` : "Record<string, unknown>";
  }
  const required = new Set(schema.required ?? []);
  const inner = `${indent}  `;
  let text = "{\n";
  for (const [name, property] of properties) {
    text += comment(property.description, inner);
    text += `${inner}${propertyName(name)}${required.has(name) ? "" : "?"}: ${typeOf(property, inner)};\n`;
  }
  if (extra === true) text += `${inner}[name: string]: unknown;\n`;
  return `${text}${indent}}`;
}

function typeOf(schema, indent) {
  for (const keyword of Object.keys(schema)) {
    if (!CONSTRAINTS.has(keyword) && !SHAPES.has(keyword)) throw new Error(`the keyword ${keyword} is not supported`);
  }
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.oneOf) return union(schema.oneOf.map((one) => typeOf(one, indent)));
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return union(schema.enum.map((value) => JSON.stringify(value)));
  const types = [schema.type].flat().filter(Boolean);
  if (types.length === 0) return "unknown";
  return union(types.map((type) => {
    if (type === "object") return objectType(schema, indent);
    if (type === "array") {
      const item = typeOf(schema.items ?? {}, indent);
      return / \| /.test(item) ? `Array<${item}>` : `${item}[]`;
    }
    return PRIMITIVES[type];
  }));
}

function declaration(name, schema) {
  const isInterface = schema.type === "object" && schema.properties !== undefined && schema.oneOf === undefined;
  const text = typeOf(schema, "");
  const head = comment(schema.description, "");
  return isInterface ? `${head}export interface ${name} ${text}\n` : `${head}export type ${name} = ${text};\n`;
}

function camel(name) {
  const joined = name.split(/[._]/).map((part) => part[0].toUpperCase() + part.slice(1)).join("");
  return joined;
}

/** The parameters of an operation that are in the path, the query or the headers, as an object type. */
function parametersType(parameters, where, indent) {
  const found = parameters.filter((one) => one.in === where && one.name !== "Laneway-Tenant");
  if (found.length === 0) return "undefined";
  const inner = `${indent}  `;
  let text = "{\n";
  for (const { name, required, schema, description } of found) {
    text += comment(description, inner);
    // `null` has no form in a URL or a header: leave the parameter out instead.
    const type = typeOf(schema ?? {}, inner).replace(/ \| null$/, "");
    text += `${inner}${propertyName(name)}${required ? "" : "?"}: ${type};\n`;
  }
  return `${text}${indent}}`;
}

function answerType(responses) {
  const types = [];
  for (const [status, { content }] of Object.entries(responses)) {
    if (!status.startsWith("2")) continue;
    const media = Object.entries(content ?? {});
    if (media.length === 0) types.push("undefined");
    for (const [type, { schema }] of media) {
      if (type === "application/json") types.push(typeOf(schema ?? {}, ""));
      else types.push("Response");
    }
  }
  return types.length === 0 ? "undefined" : union(types);
}

function operationsOf(api) {
  const operations = [];
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      // The WebSocket of workers is not a call.
      if (!operation.operationId || Object.keys(operation.responses).some((status) => status === "101")) continue;
      operations.push({ path, method: method.toUpperCase(), ...operation });
    }
  }
  return operations.sort((a, b) => a.operationId.localeCompare(b.operationId));
}

function apiFile() {
  const api = JSON.parse(readFileSync(join(SCHEMAS, "openapi.json"), "utf8"));
  let text = "// Generated by scripts/generate.mjs from docs/schema/openapi.json. Do not edit.\n\n";
  for (const [name, schema] of Object.entries(api.components.schemas).sort(([a], [b]) => a.localeCompare(b))) {
    text += `${declaration(name, schema)}\n`;
  }
  const operations = operationsOf(api);
  text += "/** The parameters, the body and the answer of every call, by operation id. */\nexport interface Operations {\n";
  for (const { operationId, summary, parameters = [], requestBody, responses } of operations) {
    const body = requestBody ? typeOf(requestBody.content["application/json"].schema ?? {}, "    ") : "undefined";
    text += comment(summary, "  ");
    text += `  ${operationId}: {\n`;
    text += `    path: ${parametersType(parameters, "path", "    ")};\n`;
    text += `    query: ${parametersType(parameters, "query", "    ")};\n`;
    text += `    body: ${body};\n`;
    text += `    answer: ${answerType(responses)};\n  };\n`;
  }
  text += "}\n\n/** The method and the path of every call, by operation id. */\n";
  text += "export const OPERATIONS: { readonly [Id in keyof Operations]: readonly [method: string, path: string] } = {\n";
  for (const { operationId, method, path } of operations) text += `  ${operationId}: ["${method}", "${path}"],\n`;
  text += "};\n\n/** Every code of an error, see docs/http-api.md. */\nexport const PROBLEM_CODES = [\n";
  for (const code of api.components.schemas.Problem.properties.code.enum) text += `  "${code}",\n`;
  return `${text}] as const;\n`;
}

/** The schema without the texts that only people read. */
function bare(schema) {
  if (Array.isArray(schema)) return schema.map(bare);
  if (schema === null || typeof schema !== "object") return schema;
  const ignored = new Set(["description", "$schema", "$id", "title", "example"]);
  const kept = Object.entries(schema).filter(([key, value]) => !(ignored.has(key) && typeof value === "string"));
  return Object.fromEntries(kept.map(([key, value]) => [key, bare(value)]));
}

function framesFile() {
  let text = "// Generated by scripts/generate.mjs from docs/schema/ws/. Do not edit.\n\n";
  const schemas = {};
  for (const file of readdirSync(join(SCHEMAS, "ws")).sort()) {
    const name = file.replace(/^ws\./, "").replace(/\.schema\.json$/, "");
    const schema = JSON.parse(readFileSync(join(SCHEMAS, "ws", file), "utf8"));
    schemas[name] = schema;
    text += `${declaration(`${camel(name)}Payload`.replace("EnvelopePayload", "Envelope"), schema)}\n`;
  }
  text += "/** The schemas of the frames that a worker receives, by type, and the one of the envelope. */\n";
  text += "export const RECEIVED: Readonly<Record<string, unknown>> = {\n";
  for (const name of RECEIVED) text += `  "${name}": ${JSON.stringify(bare(schemas[name]))},\n`;
  return `${text}};\n`;
}

const isCheck = process.argv.includes("--check");
for (const [name, text] of [["api.ts", apiFile()], ["frames.ts", framesFile()]]) {
  const path = join(OUT, name);
  if (!isCheck) {
    writeFileSync(path, text);
    continue;
  }
  let present = "";
  try {
    present = readFileSync(path, "utf8");
  } catch {
    // A missing file differs, too.
  }
  if (present !== text) {
    console.error(`src/generated/${name} is not up to date; run \`npm run generate\``);
    process.exitCode = 1;
  }
}
