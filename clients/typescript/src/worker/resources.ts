/**
 * Resources that tasks made, for later tasks and for clients that download them through the server: kept by id, with an expiry
 * and limits. Files are read in parts, never as a whole.
 */

import { randomBytes } from "node:crypto";
import { open, rm, stat } from "node:fs/promises";

import type { CmdDispatchPayload, ResourceDataPayload, ResourceReadPayload } from "../generated/frames.js";
import { PermanentFailure, RetryableFailure } from "./failure.js";
import type { Rejection } from "./frame.js";
import { keyText, type TaskKey } from "./outbox.js";
import type { Artifact } from "./outcome.js";

/** Most resources of one worker. */
export const RESOURCES_MAX = 10_000;
/** Most bytes of resources in memory, together. */
export const RESOURCE_BYTES_MAX = 256 << 20;
/** Most bytes of resources in files, together: 20 GiB. */
export const RESOURCE_FILE_BYTES_MAX = 20 * 2 ** 30;
/** How long a resource is kept unless its maker sets another time: one hour. */
const TTL_MS = 3_600_000;
/** The latest expiry. Later years have no form in RFC 3339. */
const EXPIRY_MAX_MS = Date.UTC(9999, 0, 1);
/** Longest name in a frame, in characters. */
const NAME_LEN_MAX = 1_024;
/** How long a resource is kept beyond its expiry after a part was read, so that a slow reader can finish. */
const READ_HOLD_MS = 60_000;

/** An artifact to keep: bytes, a text, or a file of this machine. */
export interface ArtifactInput {
  /** The data, in memory. */
  data?: Uint8Array | string;
  /** The path of a file, in place of `data`. It must not change while the artifact is kept. */
  path?: string;
  /** Remove the file with the artifact. Defaults to false. */
  removeFile?: boolean;
  /** The type of the artifact. Defaults to `file`. */
  type?: string;
  /** The name that clients see. */
  name?: string;
  /** The MIME type that clients see. */
  mimeType?: string;
  /** How long it is kept. Defaults to one hour. */
  ttlMs?: number;
}

/** The data of a resource. */
export type ResourceBody = { readonly data: Uint8Array } | { readonly path: string };

interface Resource {
  readonly type: string;
  readonly body: ResourceBody;
  readonly removeFile: boolean;
  readonly size: number;
  readonly expiresAtMs: number;
  /** The attempt that made it. */
  readonly maker: string;
  /** The attempts that use it. It stays until they have ended. */
  readonly users: Set<string>;
  /** Until when it is kept for a reader. */
  readUntilMs: number;
}

/** The registry of one worker. */
export class Resources {
  readonly #workerId: string;
  readonly #byId = new Map<string, Resource>();

  constructor(workerId: string) {
    this.#workerId = workerId;
  }

  /** Keeps an artifact that an attempt made, and returns its description for the result. */
  async keep(key: TaskKey, input: ArtifactInput): Promise<Artifact> {
    const type = input.type ?? "file";
    if (type === "" || type.length > NAME_LEN_MAX || !type.isWellFormed()) {
      throw new PermanentFailure("bad_artifact", `the type of an artifact has 1 to ${NAME_LEN_MAX} characters, not ${type.length}`);
    }
    const body = await bodyOf(input);
    const size = "data" in body ? body.data.byteLength : (await stat(body.path)).size;
    this.#mustFit(body, size);
    const id = `res-${randomBytes(16).toString("hex")}`;
    const expiresAtMs = Math.min(Date.now() + (input.ttlMs ?? TTL_MS), EXPIRY_MAX_MS);
    const maker = keyText(key);
    this.#byId.set(id, { type, body, removeFile: input.removeFile ?? false, size, expiresAtMs, maker, users: new Set(), readUntilMs: 0 });
    const metadata = {
      ...(input.name === undefined ? {} : { name: input.name.toWellFormed() }),
      ...(input.mimeType === undefined ? {} : { mime_type: input.mimeType.toWellFormed() }),
    };
    return {
      resource_id: id, worker_id: this.#workerId, type, size_bytes: size, inline: false,
      expires_at: new Date(expiresAtMs).toISOString(), ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
    };
  }

  /** The data of a resource that has not expired. */
  body(id: string): ResourceBody | undefined {
    const found = this.#byId.get(id);
    return found !== undefined && found.expiresAtMs > Date.now() ? found.body : undefined;
  }

  /** What a task refers to and is missing. */
  missing(dispatch: CmdDispatchPayload, nowMs: number): Rejection | undefined {
    for (const wanted of dispatch.resource_refs ?? []) {
      const id = JSON.stringify(wanted.resource_id);
      const found = this.#byId.get(wanted.resource_id);
      if (wanted.worker_id !== this.#workerId) return missing(`the resource ${id} is on the worker ${JSON.stringify(wanted.worker_id)}`);
      if (found === undefined) return missing(`there is no resource ${id}`);
      const isExpired = found.expiresAtMs <= nowMs || (wanted.expires_at !== undefined && Date.parse(wanted.expires_at) <= nowMs);
      if (isExpired) return missing(`the resource ${id} has expired`);
      if (found.type !== wanted.type) return missing(`the resource ${id} is of type ${JSON.stringify(found.type)}`);
    }
    return undefined;
  }

  /** Keeps what a task refers to until the task ends. */
  hold(dispatch: CmdDispatchPayload, key: TaskKey): void {
    for (const { resource_id: id } of dispatch.resource_refs ?? []) this.#byId.get(id)?.users.add(keyText(key));
  }

  /** An attempt has ended. Without a result, what it made is dropped: no result names it. */
  release(key: TaskKey, givesResult: boolean): void {
    for (const resource of this.#byId.values()) resource.users.delete(keyText(key));
    if (!givesResult) this.#dropIdle(Date.now(), ({ maker }) => maker === keyText(key));
  }

  /** Drops every expired resource that is not in use or being read. */
  collect(nowMs: number): void {
    this.#dropIdle(nowMs, ({ expiresAtMs }) => expiresAtMs <= nowMs);
  }

  /** Drops every resource: the worker has ended. Resolves when the files are removed. */
  async close(): Promise<void> {
    const all = [...this.#byId.values()];
    this.#byId.clear();
    await Promise.all(all.map(removeFile));
  }

  /** The number of resources, and how many bytes they take in memory. */
  usage(): { handles: number; bytes: number } {
    let bytes = 0;
    for (const { body, size } of this.#byId.values()) if ("data" in body) bytes += size;
    return { handles: this.#byId.size, bytes };
  }

  /** A part of a resource. One that expires during a download can be read to its end. */
  async read(asked: ResourceReadPayload): Promise<ResourceDataPayload | { rejection: Rejection }> {
    const { resource_id: id, offset, limit } = asked;
    const found = this.#byId.get(id);
    const nowMs = Date.now();
    if (found === undefined) return { rejection: missing(`there is no resource ${JSON.stringify(id)}`) };
    const goesOn = offset > 0 && found.readUntilMs > nowMs;
    if (found.expiresAtMs <= nowMs && !goesOn) return { rejection: missing(`the resource ${JSON.stringify(id)} has expired`) };
    found.readUntilMs = nowMs + READ_HOLD_MS;
    try {
      const part = "data" in found.body ? Buffer.from(found.body.data).subarray(offset, offset + limit) : await partOfFile(found.body.path, offset, limit);
      return { resource_id: id, offset, size_bytes: found.size, data_base64: part.toString("base64") };
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const isGone = error instanceof Error && "code" in error && error.code === "ENOENT";
      if (isGone) return { rejection: missing(`the file of the resource ${JSON.stringify(id)} is gone`) };
      return { rejection: { code: "E.INTERNAL", where: "worker.resources", message: `the resource ${JSON.stringify(id)} cannot be read: ${why}` } };
    }
  }

  #mustFit(body: ResourceBody, size: number): void {
    if (this.#byId.size >= RESOURCES_MAX) throw new RetryableFailure("resources_full", `the worker keeps ${RESOURCES_MAX} resources already`);
    const isData = "data" in body;
    let kept = 0;
    for (const other of this.#byId.values()) if ("data" in other.body === isData) kept += other.size;
    if (kept + size > (isData ? RESOURCE_BYTES_MAX : RESOURCE_FILE_BYTES_MAX)) {
      throw new RetryableFailure("resources_full", `the worker keeps ${kept} bytes of resources in ${isData ? "memory" : "files"} already`);
    }
  }

  #dropIdle(nowMs: number, which: (resource: Resource) => boolean): void {
    for (const [id, resource] of this.#byId) {
      if (resource.users.size > 0 || resource.readUntilMs > nowMs || !which(resource)) continue;
      this.#byId.delete(id);
      void removeFile(resource);
    }
  }
}

async function bodyOf(input: ArtifactInput): Promise<ResourceBody> {
  if ((input.data === undefined) === (input.path === undefined)) {
    throw new PermanentFailure("bad_artifact", "an artifact needs either data or path");
  }
  if (input.path === undefined) {
    // A copy: later changes of the caller's buffer have no effect.
    return { data: typeof input.data === "string" ? Buffer.from(input.data) : Buffer.from(input.data ?? new Uint8Array()) };
  }
  const found = await stat(input.path).catch(() => undefined);
  if (found === undefined || !found.isFile()) throw new PermanentFailure("bad_artifact", `the artifact ${input.path} is not a file`);
  return { path: input.path };
}

async function partOfFile(path: string, offset: number, limit: number): Promise<Buffer> {
  const file = await open(path, "r");
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(limit), 0, limit, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

async function removeFile({ body, removeFile: isOwned }: Resource): Promise<void> {
  if (isOwned && "path" in body) await rm(body.path, { force: true }).catch(() => {});
}

function missing(message: string): Rejection {
  return { code: "E.RESOURCE.MISSING", where: "worker.resources", message };
}
