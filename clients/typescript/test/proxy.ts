/** A TCP proxy between a client and the server that can break connections, hold data back, and change its target. */

import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** A proxy on a port that the system chooses. */
export class Proxy {
  /** Where new connections lead. */
  target: string;
  /** How many connections were opened. */
  opened = 0;
  #isHeld = false;
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();

  private constructor(server: Server, target: string) {
    this.#server = server;
    this.target = target;
  }

  static async start(target: string): Promise<Proxy> {
    const server = createServer();
    const proxy = new Proxy(server, target);
    server.on("connection", (socket) => proxy.#join(socket));
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Breaks all connections. */
  cut(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  /** Holds all data back in both directions: connections look open and deliver nothing. */
  hold(): void {
    this.#isHeld = true;
    for (const pair of this.#pairs) for (const socket of pair) socket.pause();
  }

  /** Delivers data again. */
  release(): void {
    this.#isHeld = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((closed) => this.#server.close(closed));
  }

  #join(near: Socket): void {
    this.opened += 1;
    const { hostname, port } = new URL(this.target);
    const far = connect(Number(port), hostname);
    const pair: [Socket, Socket] = [near, far];
    this.#pairs.add(pair);
    for (const [from, to] of [[near, far], [far, near]] as const) {
      from.setNoDelay(true);
      from.on("data", (data) => to.write(data));
      from.on("error", () => {});
      from.on("close", () => {
        this.#pairs.delete(pair);
        to.destroy();
      });
      if (this.#isHeld) from.pause();
    }
  }
}
