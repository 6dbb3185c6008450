-- SQLite got a table for searches by the end of an id. PostgreSQL compares ids while it lists; only the number of the schema follows.
SELECT 1;
