// Starts the built adapter of the conformance suite; `npm run build` builds it.
await import("../dist/conformance/adapter.js");
