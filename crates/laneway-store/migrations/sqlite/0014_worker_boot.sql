-- The boot id of the process that has the attempt, where the worker's process told one.
ALTER TABLE open_attempt ADD COLUMN boot TEXT;
ALTER TABLE attempt ADD COLUMN boot TEXT;
