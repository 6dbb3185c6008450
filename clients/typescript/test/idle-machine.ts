/**
 * Loaded before a program with `node --import`: memory and disk of the machine look empty. A worker on a full machine accepts no
 * tasks, and tests must not depend on the machine.
 */

import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import os from "node:os";

const EMPTY = { type: 0, bsize: 4_096, blocks: 100, bfree: 100, bavail: 100, files: 100, ffree: 100 };
Object.assign(fs, { statfsSync: () => EMPTY });
os.freemem = os.totalmem;
syncBuiltinESMExports();
