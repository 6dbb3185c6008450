-- What a call brings along, when it was made, and how many attempts of the called node it does not mean.
ALTER TABLE run_call ADD COLUMN called_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_call ADD COLUMN attempts_before INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_call ADD COLUMN payload BLOB;
