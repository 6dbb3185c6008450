"""The conformance suite for worker SDKs: it plays the server's side of the worker protocol against an adapter program."""
