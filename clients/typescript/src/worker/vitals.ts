/** The load of the machine: processors, memory and disk. Values that cannot be read are left out. */

import { statfsSync } from "node:fs";
import { cpus, freemem, totalmem } from "node:os";

import type { Vitals } from "./action.js";

/** Reads the load of the machine. The share of the processors is that since the last reading. */
export class Probe {
  readonly #disk: string;
  #last: { busy: number; total: number } | undefined;

  constructor(disk: string) {
    this.#disk = disk;
  }

  read(): Vitals {
    const ticks = cpuTicks();
    const before = this.#last;
    this.#last = ticks;
    const total = before === undefined ? 0 : ticks.total - before.total;
    const cpu = before === undefined || total <= 0 ? undefined : percent(Math.max(0, ticks.busy - before.busy), total);
    const disk = diskPct(this.#disk);
    return {
      ...(cpu === undefined ? {} : { cpu_pct: cpu }),
      mem_pct: percent(totalmem() - freemem(), totalmem()),
      ...(disk === undefined ? {} : { disk_pct: disk }),
    };
  }
}

function cpuTicks(): { busy: number; total: number } {
  let [busy, total] = [0, 0];
  for (const { times } of cpus()) {
    const used = times.user + times.nice + times.sys + times.irq;
    busy += used;
    total += used + times.idle;
  }
  return { busy, total };
}

function diskPct(path: string): number | undefined {
  try {
    const { blocks, bfree, bavail } = statfsSync(path);
    // As `df` counts: the blocks reserved for root are neither used nor free.
    const used = Math.max(0, blocks - bfree);
    return used + bavail === 0 ? undefined : percent(used, used + bavail);
  } catch {
    return undefined;
  }
}

function percent(part: number, whole: number): number {
  return Math.round((part / whole) * 1_000) / 10;
}
