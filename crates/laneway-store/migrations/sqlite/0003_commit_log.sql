-- The commit log beside the tables.

ALTER TABLE store_state ADD COLUMN log_id BLOB; -- the id of the commit log; NULL: there was none yet
ALTER TABLE store_state ADD COLUMN stored INTEGER NOT NULL DEFAULT 0; -- the last commit of the log that the tables have
