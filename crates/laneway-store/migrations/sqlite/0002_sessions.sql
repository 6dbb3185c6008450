-- Sessions, version 2: what is known of them beside their jobs, and which jobs run as one.

-- A session of which nothing needs to be known has no row.
CREATE TABLE session (
    tenant     TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    cutoff     INTEGER,                     -- when everything of it was last stopped
    generation INTEGER NOT NULL,            -- how often it was reset
    tokens     INTEGER NOT NULL,            -- of its context, as last reported
    window     INTEGER NOT NULL,            -- how many its context holds; 0: not known
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Jobs that ended as merged: the leader runs for them, with their payloads after its own, in the order of seq.
CREATE TABLE merged (
    leader INTEGER NOT NULL,
    seq    INTEGER NOT NULL,                -- the job that was merged
    job    BLOB    NOT NULL,                -- the leader's id, which outlives its row
    PRIMARY KEY (leader, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX merged_seq ON merged (seq);
