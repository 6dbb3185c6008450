/** The server itself: health, statistics, configuration, tokens, audit, webhook deliveries and instances. */

import type {
  AuditList, Caller, Delivery, DeliveryList, Drain, Health, Operations, RotateTokenRequest, Stats, StatsHistory, Token, TokenRequest, TokenSecret,
} from "../generated/api.js";
import type { CallOptions, Transport } from "../http.js";

/** The calls about the server. */
export class Server {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The health of the server. */
  health(options: CallOptions = {}): Promise<Health> {
    return this.#transport.call("get_health", options);
  }

  /** The identity, tenant and role of the caller. */
  caller(options: CallOptions = {}): Promise<Caller> {
    return this.#transport.call("get_caller", options);
  }

  /** Statistics. */
  stats(query: Operations["get_stats"]["query"] = {}, options: CallOptions = {}): Promise<Stats> {
    return this.#transport.call("get_stats", { ...options, query });
  }

  /** What happened in the last hour, or in the last day with `range: "1d"`. */
  statsHistory(query: Operations["get_stats_history"]["query"] = {}, options: CallOptions = {}): Promise<StatsHistory> {
    return this.#transport.call("get_stats_history", { ...options, query });
  }

  /** The metrics for Prometheus, as text. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return (await this.#transport.respond("get_metrics", options)).text();
  }

  /** Rejects new jobs while waiting and running ones go on; `false` admits them again. */
  drain(isDraining = true, options: CallOptions = {}): Promise<Drain> {
    return this.#transport.call(isDraining ? "begin_drain" : "end_drain", { ...options, repeatable: true });
  }

  /** The configuration in force. */
  config(options: CallOptions = {}): Promise<unknown> {
    return this.#transport.call("get_config", options);
  }

  /** Changes the configuration (JSON merge patch), all or nothing. */
  patchConfig(patch: unknown, options: CallOptions = {}): Promise<unknown> {
    return this.#transport.call("patch_config", { ...options, body: patch, repeatable: true });
  }

  /** A page of the audit list. */
  audit(query: Operations["list_audit"]["query"] = {}, options: CallOptions = {}): Promise<AuditList> {
    return this.#transport.call("list_audit", { ...options, query });
  }

  /** Tokens, including ended ones. */
  async tokens(options: CallOptions = {}): Promise<Token[]> {
    return (await this.#transport.call("list_tokens", options)).tokens;
  }

  /** Creates a token. The secret is shown once. */
  createToken(request: TokenRequest, options: CallOptions = {}): Promise<TokenSecret> {
    return this.#transport.call("create_token", { ...options, body: request, repeatable: false });
  }

  /** Replaces a token. */
  rotateToken(id: string, request: RotateTokenRequest = {}, options: CallOptions = {}): Promise<TokenSecret> {
    return this.#transport.call("rotate_token", { ...options, path: { id }, body: request, repeatable: false });
  }

  /** Revokes a token. */
  revokeToken(id: string, options: CallOptions = {}): Promise<Token> {
    return this.#transport.call("revoke_token", { ...options, path: { id } });
  }

  /** A page of webhook deliveries, newest job first. */
  deliveries(query: Operations["list_deliveries"]["query"] = {}, options: CallOptions = {}): Promise<DeliveryList> {
    return this.#transport.call("list_deliveries", { ...options, query });
  }

  /** The delivery of a job, with every try. */
  delivery(id: string, options: CallOptions = {}): Promise<Delivery> {
    return this.#transport.call("get_delivery", { ...options, path: { id } });
  }

  /** Sends the webhook of a job again. */
  replayDelivery(id: string, options: CallOptions = {}): Promise<Delivery> {
    return this.#transport.call("replay_delivery", { ...options, path: { id }, repeatable: false });
  }
}
