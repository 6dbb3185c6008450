/** Where the token comes from. It is read for every call and every connection, so that it can be rotated. */

import { readFile } from "node:fs/promises";

import { LanewayError } from "./errors.js";

/** The token, or a function that returns it. */
export type TokenSource = string | (() => string | undefined | Promise<string | undefined>);

/** Reads the token of the next call or connection: `source`, else the file `LANEWAY_TOKEN_FILE`, else `LANEWAY_TOKEN`. */
export function tokenReader(source: TokenSource | undefined): () => Promise<string | undefined> {
  if (typeof source === "function") return async () => source();
  if (source !== undefined) return async () => source;
  const file = process.env["LANEWAY_TOKEN_FILE"];
  if (file === undefined || file === "") return async () => process.env["LANEWAY_TOKEN"] || undefined;
  return async () => {
    const text = await readFile(file, "utf8").catch((cause: unknown) => {
      throw new LanewayError(`the token file ${file} of LANEWAY_TOKEN_FILE cannot be read`, { cause });
    });
    return text.trim() || undefined;
  };
}
