-- Keys that jobs keep after their end, and records.

-- The keys that an ended job keeps until they are released, one row for each key. The rows outlive the row of the job.
CREATE TABLE kept_key (
    job      BLOB    NOT NULL,                 -- the id of the job
    position INTEGER NOT NULL,                 -- 0, 1, 2, ... among the kept keys of the job
    tenant   TEXT    NOT NULL,                 -- the tenant of the job
    name     TEXT    NOT NULL,                 -- the key's name
    value    TEXT    NOT NULL,                 -- the key's value
    since    INTEGER NOT NULL,                 -- when the job ended
    sum      INTEGER NOT NULL AS (row_sum(job, position, tenant, name, value, since)) STORED, -- checksum of the columns above
    PRIMARY KEY (job, position)
) STRICT, WITHOUT ROWID;

-- Records: small documents of features around the engine. Bodies may have 64 KiB, so the table has row ids.
CREATE TABLE record (
    tenant     TEXT    NOT NULL,               -- the tenant of the record
    collection TEXT    NOT NULL,               -- the feature that it belongs to
    id         TEXT    NOT NULL,               -- its id within the collection
    version    INTEGER NOT NULL,               -- number of the event that recorded its last change
    body       BLOB    NOT NULL,               -- its content, in the format of the feature
    created_at INTEGER NOT NULL,               -- when it was created
    updated_at INTEGER NOT NULL,               -- when it was last changed
    sum        INTEGER NOT NULL,               -- checksum of the columns above
    PRIMARY KEY (tenant, collection, id)
) STRICT;
