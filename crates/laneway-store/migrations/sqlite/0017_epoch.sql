-- How often the store was opened for writing. A commit of an earlier opening is rejected.
ALTER TABLE head ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
