-- The tables of a Laneway store in PostgreSQL. They are those of SQLite; docs/decisions/0001-rows.md explains the layout.
--
-- Times are milliseconds since 1970 by the wall clock, spans are milliseconds. Codes are those of laneway-core. Ids are
-- 16 bytes, big end first. A "form" is a column in the binary encoding of laneway-store's codec.

-- Every job, live or ended. A row is inserted once, at submit, in the order of seq. The columns from state on are the
-- status. They change only when the job waits again: an open attempt and an end have rows of their own.
CREATE TABLE laneway.job (
    seq              BIGINT           PRIMARY KEY, -- 1, 2, 3, ... in the order of submission
    id               BYTEA            NOT NULL, -- the public id
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant that may see it
    kind             TEXT COLLATE "C" NOT NULL, -- selects the handler
    agent            TEXT COLLATE "C" NOT NULL, -- the agent whose fair share it counts against
    lane             TEXT COLLATE "C" NOT NULL, -- the lane it runs in
    session          TEXT COLLATE "C", -- the key of its session; NULL: none
    priority         BIGINT           NOT NULL, -- a lower number runs sooner
    cost             BIGINT           NOT NULL, -- capacity units that it holds while an attempt is open
    rank_time        BIGINT           NOT NULL, -- engine time for ordering, kept over retries
    created_at       BIGINT           NOT NULL, -- when it was submitted
    spec             BYTEA            NOT NULL, -- the form of every other field of the submitted job
    sum              BIGINT           NOT NULL, -- checksum of the columns above
    state            BIGINT           NOT NULL CHECK (state BETWEEN 0 AND 1), -- code: scheduled or queued
    wake_at          BIGINT, -- scheduled: when it becomes queued
    attempts         BIGINT           NOT NULL, -- number of the last attempt
    failures         BIGINT           NOT NULL, -- attempts that failed
    losses           BIGINT           NOT NULL, -- attempts that were lost
    rejections       BIGINT           NOT NULL, -- reservations that no worker claimed, and dispatches that a worker rejected
    near_deadline    BIGINT           NOT NULL, -- 1: its deadline is near
    denials          BIGINT           NOT NULL, -- recorded denials for lack of capacity
    denied_until     BIGINT, -- the next denial is recorded no sooner
    last_event       BIGINT           NOT NULL, -- number of its latest event
    key              TEXT COLLATE "C", -- its idempotency key, which is in spec, too
    member           BOOLEAN NOT NULL -- true: it is a member of a run
);
-- Ids begin with their time, so this index grows at its end.
CREATE UNIQUE INDEX job_id ON laneway.job (id);
-- Lists filter by these, newest first. New jobs go to the end of each name's part of an index.
CREATE INDEX job_tenant ON laneway.job (tenant, seq);
CREATE INDEX job_lane ON laneway.job (lane, seq);
CREATE INDEX job_kind ON laneway.job (kind, seq);
CREATE INDEX job_agent ON laneway.job (agent, seq);
CREATE INDEX job_session ON laneway.job (session, seq) WHERE session IS NOT NULL;

-- The payloads of jobs. They are apart, so that scans of jobs do not read them.
CREATE TABLE laneway.payload (
    seq              BIGINT           PRIMARY KEY, -- the job
    bytes            BYTEA            NOT NULL, -- the payload
    sum              BIGINT           NOT NULL -- checksum of the columns above
);

-- Which jobs have not ended: one bit for each job, 1024 jobs in a row. A row without bits is removed.
CREATE TABLE laneway.live_chunk (
    chunk            BIGINT           PRIMARY KEY, -- seq / 1024
    bits             BYTEA            NOT NULL CHECK (octet_length(bits) = 128) -- bit seq % 1024 of it, the low bit of a byte first
);

-- Open attempts. The key allows at most one for each job.
CREATE TABLE laneway.open_attempt (
    seq              BIGINT           PRIMARY KEY, -- the job
    attempt          BIGINT           NOT NULL, -- number of the attempt: 1, 2, 3, ...
    attempt_id       BYTEA            NOT NULL, -- its random id, which is the id of its lease, too
    lease_epoch      BIGINT           NOT NULL, -- grows each time it moves to another connection
    executor         TEXT COLLATE "C" NOT NULL, -- where it runs
    mode             BIGINT           NOT NULL, -- code: attached to the server's process, or leased
    state            BIGINT           NOT NULL CHECK (state BETWEEN 2 AND 3), -- code: assigned or running
    opened_at        BIGINT           NOT NULL, -- when it was opened
    started_at       BIGINT, -- when it started to run
    last_event       BIGINT           NOT NULL, -- number of the job's latest event
    lease_ms         BIGINT           NOT NULL, -- the longest lease that its runner was granted
    worker           TEXT COLLATE "C", -- the worker that has it
    pid              BIGINT, -- the worker's process id
    boot             TEXT COLLATE "C", -- the boot id of the worker's process
    dispatch_seq     BIGINT -- its number within its run; NULL: the same as attempt
);

-- Closed attempts, except those that ended their job.
CREATE TABLE laneway.attempt (
    seq              BIGINT           NOT NULL, -- see open_attempt
    attempt          BIGINT           NOT NULL, -- see open_attempt
    attempt_id       BYTEA            NOT NULL, -- see open_attempt
    lease_epoch      BIGINT           NOT NULL, -- see open_attempt
    executor         TEXT COLLATE "C" NOT NULL, -- see open_attempt
    mode             BIGINT           NOT NULL, -- see open_attempt
    state            BIGINT           NOT NULL CHECK (state BETWEEN 2 AND 3), -- see open_attempt
    opened_at        BIGINT           NOT NULL, -- see open_attempt
    started_at       BIGINT, -- see open_attempt
    last_event       BIGINT           NOT NULL, -- see open_attempt
    lease_ms         BIGINT           NOT NULL, -- see open_attempt
    worker           TEXT COLLATE "C", -- see open_attempt
    pid              BIGINT, -- see open_attempt
    boot             TEXT COLLATE "C", -- see open_attempt
    dispatch_seq     BIGINT, -- see open_attempt
    ended            BIGINT           NOT NULL, -- code: how it ended
    error            BYTEA, -- the form of its failure
    closed_at        BIGINT           NOT NULL, -- when it was closed
    PRIMARY KEY (seq, attempt)
);

-- Lanes by number, which keeps the index on ended jobs narrow.
CREATE TABLE laneway.lane (
    number           BIGINT           PRIMARY KEY, -- 1, 2, 3, ... in the order of their first job
    name             TEXT COLLATE "C" NOT NULL UNIQUE -- the lane
);

-- How jobs ended, in the order of their ends. Jobs end in fair order, not in the order of submission, and an append is
-- several times cheaper than an insert in the middle.
CREATE TABLE laneway.done (
    ended            BIGINT           PRIMARY KEY, -- 1, 2, 3, ... in the order of ends
    seq              BIGINT           NOT NULL, -- the job
    retention_bucket BIGINT           NOT NULL, -- lane.number * 2, + 1 with an idempotency key; -1 for a member of a run
    state            BIGINT           NOT NULL CHECK (state BETWEEN 4 AND 7), -- code: the terminal state
    reason           BIGINT           NOT NULL, -- code: why it ended so
    attempt_id       BYTEA, -- the attempt that ended it
    started_at       BIGINT, -- when its last attempt started to run
    finished_at      BIGINT           NOT NULL, -- when it ended
    attempts         BIGINT           NOT NULL, -- attempts opened
    failures         BIGINT           NOT NULL, -- attempts that failed
    losses           BIGINT           NOT NULL, -- attempts that were lost
    last_event       BIGINT           NOT NULL, -- number of its last event
    error            BYTEA, -- the form of its failure
    result           BYTEA, -- what its handler returned
    sum              BIGINT           NOT NULL, -- checksum of the other columns, except ended and retention_bucket
    error_code       TEXT COLLATE "C" -- the code of its failure, which is in error, too
);
CREATE UNIQUE INDEX done_seq ON laneway.done (seq);
-- Retention looks for the oldest ends of a bucket. The index grows at one end for each bucket.
CREATE INDEX done_retention ON laneway.done (retention_bucket, finished_at);
-- Lists of jobs that did not succeed.
CREATE INDEX done_error_code ON laneway.done (error_code, seq) WHERE error_code IS NOT NULL;
CREATE INDEX done_unsuccessful ON laneway.done (seq) WHERE state <> 4;

-- Idempotency keys of jobs.
CREATE TABLE laneway.idempotency (
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant of the client
    key              TEXT COLLATE "C" NOT NULL, -- the client's key
    job              BYTEA            NOT NULL, -- id of the job that the key stands for
    digest           BYTEA            NOT NULL, -- digest of the request
    PRIMARY KEY (tenant, key)
);

-- Log lines of attempts.
CREATE TABLE laneway.log (
    seq              BIGINT           NOT NULL, -- the job
    line             BIGINT           NOT NULL, -- 1, 2, 3, ... within the job
    attempt          BIGINT           NOT NULL, -- number of the attempt that wrote it
    at               BIGINT           NOT NULL, -- when it was written
    stream           TEXT COLLATE "C" NOT NULL, -- stdout, stderr, log, ...
    text             TEXT COLLATE "C" NOT NULL, -- the line
    bytes            BIGINT           NOT NULL, -- bytes of all lines of the job so far
    PRIMARY KEY (seq, line)
);

-- The event log: one row for the events of one commit. A hash covers the hash before it and the row's bytes.
CREATE TABLE laneway.event_batch (
    first            BIGINT           PRIMARY KEY, -- number of the first event
    count            BIGINT           NOT NULL CHECK (count > 0), -- how many events
    at               BIGINT           NOT NULL, -- the latest time among them
    hash             BYTEA            NOT NULL CHECK (octet_length(hash) = 32), -- sha256(hash of the batch before, bytes)
    bytes            BYTEA            NOT NULL -- the form of the events
);

-- Tokens, revoked ones included.
CREATE TABLE laneway.token (
    id               TEXT COLLATE "C" PRIMARY KEY, -- the public part
    tenant           TEXT COLLATE "C", -- the tenant it is bound to; NULL: the whole server
    role             BIGINT           NOT NULL, -- code: what it may do
    digest           BYTEA            NOT NULL, -- digest of the secret
    note             TEXT COLLATE "C" NOT NULL, -- a text for people
    created_at       BIGINT           NOT NULL, -- when it was created
    expires_at       BIGINT, -- when it ends by itself
    revoked_at       BIGINT -- when it was revoked
);

-- Sessions of which something must be remembered beside their jobs.
CREATE TABLE laneway.session (
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant of the session
    key              TEXT COLLATE "C" NOT NULL, -- its name
    cutoff           BIGINT, -- when it was last stopped as a whole
    generation       BIGINT           NOT NULL, -- how often it was reset
    tokens           BIGINT           NOT NULL, -- tokens used of its context window, as last reported
    context_window   BIGINT           NOT NULL, -- tokens that its context window holds; 0: not known
    updated_at       BIGINT           NOT NULL, -- when the row last changed
    PRIMARY KEY (tenant, key)
);

-- Jobs that were merged into a debounce batch. The first job of the batch, the leader, runs for them, with their payloads
-- after its own, in the order of seq.
CREATE TABLE laneway.merged (
    leader           BIGINT           NOT NULL, -- number of the job that runs
    seq              BIGINT           NOT NULL, -- number of the job that was merged
    job              BYTEA            NOT NULL, -- the leader's id, which may outlive the leader's row
    PRIMARY KEY (leader, seq)
);
CREATE UNIQUE INDEX merged_seq ON laneway.merged (seq);

-- Schedules. The columns from next_at on change by themselves, slot by slot. Payload and note are apart, so that they are
-- not written again each time.
CREATE TABLE laneway.schedule (
    id               BYTEA            PRIMARY KEY, -- the public id
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant that may see it
    name             TEXT COLLATE "C" NOT NULL, -- unique within the tenant
    owner            TEXT COLLATE "C", -- the user it belongs to
    enabled          BIGINT           NOT NULL CHECK (enabled IN (0, 1)), -- 0: no slot comes
    timing           TEXT COLLATE "C" NOT NULL CHECK (timing IN ('at', 'every', 'cron')), -- which of the next five columns count
    fire_at          BIGINT, -- at: the only slot
    interval_ms      BIGINT, -- every: the time between slots
    anchor_at        BIGINT, -- every: a slot from which the others are counted
    cron_expression  TEXT COLLATE "C", -- cron: the expression
    timezone         TEXT COLLATE "C", -- cron: its time zone; NULL: the server's
    template         BYTEA            NOT NULL, -- the form of the job that each slot creates
    delete_after_run BIGINT           NOT NULL CHECK (delete_after_run IN (0, 1)), -- 1: deleted once a firing has ended
    catch_up         BIGINT           NOT NULL, -- missed slots: -1 skip, 0 latest, n all, at most n
    overlap          BIGINT           NOT NULL, -- code: the policy for a slot that meets an active firing
    jitter_ms        BIGINT           NOT NULL, -- the longest random delay of a slot
    created_at       BIGINT           NOT NULL, -- when it was created
    updated_at       BIGINT           NOT NULL, -- when a call last changed it
    next_at          BIGINT, -- the next slot
    last_slot        BIGINT, -- the latest slot; no slot up to this one fires again
    waiting_slot     BIGINT, -- a slot that waits for a firing to end
    last_ended_at    BIGINT, -- when its latest firing ended
    last_status      BIGINT, -- code: the status of its latest firing
    last_error       TEXT COLLATE "C", -- the error of its latest firing
    firings          BIGINT           NOT NULL -- how many jobs it created
);
CREATE UNIQUE INDEX schedule_name ON laneway.schedule (tenant, name);

-- The large parts of schedules.
CREATE TABLE laneway.schedule_payload (
    id               BYTEA            PRIMARY KEY, -- the schedule
    payload          BYTEA            NOT NULL, -- the payload of its jobs
    note             BYTEA            NOT NULL -- bytes that an API keeps with it
);

-- Slots that fired or were skipped. The key allows each slot once. It is written in the transaction that creates the job.
CREATE TABLE laneway.schedule_slot (
    schedule         BYTEA            NOT NULL, -- the schedule
    slot             BIGINT           NOT NULL, -- the time of the slot
    job              BYTEA, -- id of the job; NULL: the slot was skipped
    PRIMARY KEY (schedule, slot)
);
-- Retention looks for the oldest slots. The index grows at its end.
CREATE INDEX schedule_slot_time ON laneway.schedule_slot (slot);

-- The firing log. It outlives the schedules.
CREATE TABLE laneway.firing_log (
    number           BIGINT           PRIMARY KEY, -- number of the event about the end of the firing
    schedule         BYTEA            NOT NULL, -- the schedule, which may be deleted
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant of the schedule
    name             TEXT COLLATE "C" NOT NULL, -- the schedule's name when it fired
    agent            TEXT COLLATE "C" NOT NULL, -- the agent of the job
    job              BYTEA, -- id of the job; NULL: the slot was skipped
    slot             BIGINT           NOT NULL, -- the slot; of a manual fire, the time of the call
    status           BIGINT           NOT NULL, -- code: how it ended
    summary          TEXT COLLATE "C", -- the result as text
    error            TEXT COLLATE "C", -- what failed, or why the slot was skipped
    attempts         BIGINT           NOT NULL, -- attempts opened
    duration_ms      BIGINT           NOT NULL, -- from the first start to the end
    input_tokens     BIGINT           NOT NULL, -- tokens read, as reported
    output_tokens    BIGINT           NOT NULL, -- tokens written, as reported
    ran_at           BIGINT           NOT NULL, -- when its first attempt started, or when the slot was skipped
    ended_at         BIGINT           NOT NULL -- when it ended
);
CREATE INDEX firing_log_schedule ON laneway.firing_log (schedule, number);
CREATE INDEX firing_log_tenant ON laneway.firing_log (tenant, number);

-- How many entries of the firing log each schedule has, so that a list need not count them.
CREATE TABLE laneway.firing_count (
    schedule         BYTEA            PRIMARY KEY, -- the schedule
    tenant           TEXT COLLATE "C" NOT NULL, -- its tenant
    entries          BIGINT           NOT NULL CHECK (entries >= 0) -- entries of the firing log
);
CREATE INDEX firing_count_tenant ON laneway.firing_count (tenant, entries);

-- Webhook deliveries: at most one for each job.
CREATE TABLE laneway.delivery (
    seq              BIGINT           PRIMARY KEY, -- the job
    job              BYTEA            NOT NULL, -- its id
    tenant           TEXT COLLATE "C" NOT NULL, -- its tenant
    host             TEXT COLLATE "C" NOT NULL, -- host and port of the callback; deliveries are fair between hosts
    state            BIGINT           NOT NULL CHECK (state BETWEEN 0 AND 3), -- code: waiting, delivered, failed or dropped
    tries            BIGINT           NOT NULL, -- tries that have ended
    next_at          BIGINT, -- when it is tried next
    created_at       BIGINT           NOT NULL, -- when the job ended
    ended_at         BIGINT, -- when it was delivered, failed or dropped
    last_status      BIGINT, -- HTTP status of the last try
    last_error       TEXT COLLATE "C" -- error of the last try
);
-- A start reads the waiting deliveries only, and lists filter by state or tenant.
CREATE INDEX delivery_state ON laneway.delivery (state, seq);
CREATE INDEX delivery_tenant ON laneway.delivery (tenant, seq);

-- Tries at deliveries that have ended.
CREATE TABLE laneway.delivery_try (
    seq              BIGINT           NOT NULL, -- the job
    number           BIGINT           NOT NULL, -- 1, 2, 3, ... within the delivery
    at               BIGINT           NOT NULL, -- when it ended
    took_ms          BIGINT           NOT NULL, -- how long it took
    status           BIGINT, -- HTTP status of the answer
    error            TEXT COLLATE "C", -- what failed
    PRIMARY KEY (seq, number)
);

-- Workflow runs. The jobs of a run are numbered without gaps from its first one on, in the order of its nodes, so that no
-- table has to list them. They are pruned together with their run.
CREATE TABLE laneway.run (
    first            BIGINT           PRIMARY KEY, -- number of its first job
    members          BIGINT           NOT NULL CHECK (members > 0), -- how many jobs it has
    id               BYTEA            NOT NULL, -- the public id
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant that may see it
    lane             TEXT COLLATE "C" NOT NULL, -- the lane whose retention applies
    state            BIGINT           NOT NULL CHECK (state BETWEEN 0 AND 4), -- code: where it stands
    created_at       BIGINT           NOT NULL, -- when it was submitted
    finished_at      BIGINT, -- when its last member ended
    key              TEXT COLLATE "C", -- the client's idempotency key
    digest           BYTEA, -- digest of the request with that key
    spec             BYTEA            NOT NULL -- the form of every other field, with the names of the nodes
);
CREATE UNIQUE INDEX run_id ON laneway.run (id);
CREATE INDEX run_tenant ON laneway.run (tenant, first);
CREATE UNIQUE INDEX run_key ON laneway.run (tenant, key) WHERE key IS NOT NULL;
-- A start reads the open runs only.
CREATE INDEX run_open ON laneway.run (first) WHERE finished_at IS NULL;
-- Retention looks for the oldest ended runs of a lane.
CREATE INDEX run_ended ON laneway.run (lane, finished_at) WHERE finished_at IS NOT NULL;

-- The definitions of runs, in the clients' own format. They may be long, and lists do not show them.
CREATE TABLE laneway.run_definition (
    seq              BIGINT           PRIMARY KEY, -- number of the run's first job
    bytes            BYTEA            NOT NULL -- the definition
);

-- The latest call of each node that a middleware of its run called.
CREATE TABLE laneway.run_call (
    target           BIGINT           PRIMARY KEY, -- number of the called node's job
    caller           BYTEA            NOT NULL, -- the fence of the calling attempt: id of its job
    attempt          BIGINT           NOT NULL, -- the fence: number of the attempt
    attempt_id       BYTEA            NOT NULL, -- the fence: id of the attempt
    lease_epoch      BIGINT           NOT NULL, -- the fence: lease epoch
    request          TEXT COLLATE "C" NOT NULL, -- the caller's name for the call
    called_at        BIGINT           NOT NULL, -- when it was made
    attempts_before  BIGINT           NOT NULL, -- attempts of the called node from before the call
    until            BIGINT, -- the deadline of the call
    payload          BYTEA, -- the payload of the call
    answer           BIGINT           NOT NULL CHECK (answer BETWEEN 0 AND 2), -- 0 none yet, 1 the result, 2 a failure
    code             BIGINT, -- code: why the call failed
    message          TEXT COLLATE "C", -- the same for people
    result           BYTEA -- the latest result of the node
);

-- One row: counters that must survive the rows they were counted from, and the state of the server.
CREATE TABLE laneway.server_state (
    one              BIGINT           PRIMARY KEY CHECK (one = 1), -- always 1
    last_seq         BIGINT           NOT NULL, -- highest job.seq when jobs were last pruned
    last_ended       BIGINT           NOT NULL, -- highest done.ended when jobs were last pruned
    pruned_event     BIGINT           NOT NULL, -- number of the last event that was pruned
    pruned_hash      BYTEA            NOT NULL, -- hash of its batch, from which the chain goes on
    overrides        BYTEA, -- settings that were changed through the API
    clock_seen       BIGINT, -- the time up to which retention has counted; a clock jump deletes nothing
    commits          BIGINT           NOT NULL -- how many transactions wrote; a writer finds out here whether its last one did
);
INSERT INTO laneway.server_state VALUES (1, 0, 0, 0, decode(repeat('00', 32), 'hex'), NULL, NULL, 0);

-- The keys that an ended job keeps until they are released, one row for each key. The rows outlive the row of the job.
CREATE TABLE laneway.kept_key (
    job              BYTEA            NOT NULL, -- the id of the job
    position         BIGINT           NOT NULL, -- 0, 1, 2, ... among the kept keys of the job
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant of the job
    name             TEXT COLLATE "C" NOT NULL, -- the key's name
    value            TEXT COLLATE "C" NOT NULL, -- the key's value
    since            BIGINT           NOT NULL, -- when the job ended
    PRIMARY KEY (job, position)
);

-- Records: small documents of features around the engine.
CREATE TABLE laneway.record (
    tenant           TEXT COLLATE "C" NOT NULL, -- the tenant of the record
    collection       TEXT COLLATE "C" NOT NULL, -- the feature that it belongs to
    id               TEXT COLLATE "C" NOT NULL, -- its id within the collection
    version          BIGINT           NOT NULL, -- number of the event that recorded its last change
    body             BYTEA            NOT NULL, -- its content, in the format of the feature
    created_at       BIGINT           NOT NULL, -- when it was created
    updated_at       BIGINT           NOT NULL, -- when it was last changed
    sum              BIGINT           NOT NULL, -- checksum of the columns above
    PRIMARY KEY (tenant, collection, id)
);

-- Which server may write. A server that takes a domain over takes the next epoch, and every transaction that writes locks this
-- row and compares epoch and nonce: writers of earlier epochs are fenced. Every server has the one domain 'main' for now.
CREATE TABLE laneway.domain (
    name             TEXT COLLATE "C" PRIMARY KEY,
    epoch            BIGINT           NOT NULL, -- how often the domain was taken over
    nonce            BYTEA            NOT NULL -- random bytes of the server that has it
);
INSERT INTO laneway.domain VALUES ('main', 0, ''::bytea);

-- Who owns a domain, and until when, by the clock of the database. This is apart from the row that transactions lock, so that a
-- renewal never waits for a commit.
CREATE TABLE laneway.tenure (
    domain           TEXT COLLATE "C" PRIMARY KEY REFERENCES laneway.domain,
    epoch            BIGINT           NOT NULL, -- as in domain
    nonce            BYTEA            NOT NULL, -- as in domain
    node             BYTEA, -- the node that owns it; NULL: a server that is no node
    since            TIMESTAMPTZ      NOT NULL, -- when it was taken over
    expires_at       TIMESTAMPTZ      NOT NULL, -- from then on another node may take it over
    free             BOOLEAN          NOT NULL -- true: its owner gave it back
) WITH (fillfactor = 20);
INSERT INTO laneway.tenure VALUES ('main', 0, ''::bytea, NULL, now(), now(), true);

-- The nodes of the cluster.
CREATE TABLE laneway.node (
    id               BYTEA PRIMARY KEY, -- random bytes of the process
    name             TEXT COLLATE "C" NOT NULL, -- its host and process, for people
    url              TEXT COLLATE "C" NOT NULL, -- where clients reach it
    address          TEXT COLLATE "C" NOT NULL, -- where other nodes reach it
    certificate      BYTEA, -- SHA-256 of the certificate that it shows to other nodes; NULL: no TLS
    version          TEXT COLLATE "C" NOT NULL, -- of its program
    started_at       TIMESTAMPTZ      NOT NULL,
    seen_at          TIMESTAMPTZ      NOT NULL -- its last heartbeat
) WITH (fillfactor = 20);

-- What nodes show to one another.
CREATE TABLE laneway.cluster (
    id               INTEGER PRIMARY KEY CHECK (id = 1),
    secret           BYTEA            NOT NULL -- random bytes
);

-- Jobs that applications submit in transactions of their own, with laneway.submit() or by inserting rows. The server removes a row
-- when its job is stored. A rejected row stays, with the reason.
CREATE TABLE laneway.inbox (
    number           BIGINT           GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- 1, 2, 3, ... with gaps
    tenant           TEXT COLLATE "C" NOT NULL DEFAULT 'default', -- the tenant of the job
    key              TEXT COLLATE "C" NOT NULL DEFAULT 'inbox:' || gen_random_uuid(), -- its idempotency key, unless the request has one
    request          TEXT COLLATE "C" NOT NULL, -- the job, in the JSON of POST /v1/jobs
    submitted_at     TIMESTAMPTZ      NOT NULL DEFAULT now(), -- when the transaction began that submitted it
    rejected_at      TIMESTAMPTZ, -- when it was rejected
    code             TEXT COLLATE "C", -- the code of the error
    reason           TEXT COLLATE "C" -- what was wrong, and the remedy
);
CREATE INDEX inbox_waiting ON laneway.inbox (number) WHERE rejected_at IS NULL;

-- One row: whether the server waits for a notification.
CREATE TABLE laneway.inbox_state (
    one              BIGINT           PRIMARY KEY CHECK (one = 1), -- always 1
    listening        BOOLEAN          NOT NULL -- true: rows are notified
);
INSERT INTO laneway.inbox_state VALUES (1, false);

CREATE FUNCTION laneway.notify_inbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT listening FROM laneway.inbox_state) THEN
        PERFORM pg_notify('laneway_inbox', '');
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER inbox_notify AFTER INSERT ON laneway.inbox FOR EACH STATEMENT EXECUTE FUNCTION laneway.notify_inbox();

-- Submits a job in the transaction of the caller. Returns the number of the row in laneway.inbox. `options` may have any other field
-- of POST /v1/jobs. The caller needs USAGE on the schema, and no right on the tables.
CREATE FUNCTION laneway.submit(
    kind text, payload jsonb DEFAULT NULL, lane text DEFAULT NULL, agent text DEFAULT NULL, session text DEFAULT NULL,
    priority integer DEFAULT NULL, idempotency_key text DEFAULT NULL, not_before timestamptz DEFAULT NULL,
    tenant text DEFAULT 'default', options jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    request jsonb := coalesce(options, '{}') || jsonb_strip_nulls(jsonb_build_object(
        'kind', kind, 'lane', lane, 'agent', agent, 'session', session, 'priority', priority,
        'idempotency_key', idempotency_key,
        'not_before', to_char(not_before AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')));
    added bigint;
BEGIN
    IF payload IS NOT NULL THEN
        request := request || jsonb_build_object('payload', payload);
    END IF;
    INSERT INTO laneway.inbox (tenant, request) VALUES (coalesce(tenant, 'default'), request::text)
    RETURNING number INTO added;
    RETURN added;
END
$$;

-- Schedules and the firing log with the names of cron jobs. The program does not read these views.
CREATE VIEW laneway.cron_jobs AS
SELECT encode(schedule.id, 'hex')::uuid AS id, tenant AS tenant_id, owner AS user_id, name, enabled = 1 AS enabled,
       timing AS schedule_kind, cron_expression,
       to_timestamp(fire_at / 1000.0) AS run_at, interval_ms, timezone,
       encode(payload, 'escape') AS payload, delete_after_run = 1 AS delete_after_run,
       to_timestamp(next_at / 1000.0) AS next_run_at, to_timestamp(last_ended_at / 1000.0) AS last_run_at,
       CASE last_status WHEN 0 THEN 'ok' WHEN 1 THEN 'error' WHEN 2 THEN 'running' WHEN 3 THEN 'canceled' WHEN 4 THEN 'skipped'
            WHEN 5 THEN 'interrupted' WHEN 6 THEN 'timeout' END AS last_status, last_error,
       to_timestamp(created_at / 1000.0) AS created_at, to_timestamp(updated_at / 1000.0) AS updated_at
FROM laneway.schedule JOIN laneway.schedule_payload USING (id);

CREATE VIEW laneway.cron_run_logs AS
SELECT number AS id, encode(schedule, 'hex')::uuid AS job_id, tenant AS tenant_id, agent AS agent_id,
       CASE status WHEN 0 THEN 'ok' WHEN 1 THEN 'error' WHEN 2 THEN 'running' WHEN 3 THEN 'canceled' WHEN 4 THEN 'skipped'
            WHEN 5 THEN 'interrupted' WHEN 6 THEN 'timeout' END AS status,
       summary, error, duration_ms, input_tokens, output_tokens,
       to_timestamp(ran_at / 1000.0) AS ran_at, to_timestamp(ended_at / 1000.0) AS created_at
FROM laneway.firing_log;

-- Views for people who look with SQL, with the names of hosts of add-ons. The program does not read them.
CREATE VIEW laneway.scheduler_jobs AS
SELECT encode(job.id, 'hex') AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane, job.cost AS cost_units, job.priority,
       CASE WHEN done.state = 4 THEN 'DONE'
            WHEN done.state = 5 THEN 'FAILED'
            WHEN done.state IS NOT NULL THEN 'CANCELED'
            WHEN open_attempt.state = 2 THEN 'DISPATCHING'
            WHEN open_attempt.state = 3 THEN 'RUNNING'
            ELSE 'QUEUED' END AS state,
       coalesce(done.attempts, open_attempt.attempt, job.attempts) + job.denials AS attempts,
       CASE WHEN done.seq IS NULL AND open_attempt.seq IS NULL THEN coalesce(job.wake_at, job.denied_until) END AS next_earliest_start_at,
       encode(open_attempt.attempt_id, 'hex') AS lease_id, open_attempt.worker, open_attempt.pid,
       job.created_at, done.finished_at
FROM laneway.job LEFT JOIN laneway.open_attempt USING (seq) LEFT JOIN laneway.done USING (seq);

CREATE VIEW laneway.scheduler_leases AS
SELECT encode(open_attempt.attempt_id, 'hex') AS lease_id, encode(job.id, 'hex') AS job_id, job.tenant, job.agent AS addon_id,
       job.kind AS job_type, job.cost AS cost_units, open_attempt.worker, open_attempt.pid,
       CASE open_attempt.state WHEN 2 THEN 'DISPATCHING' ELSE 'ACTIVE' END AS state,
       open_attempt.opened_at AS granted_at, open_attempt.lease_ms
FROM laneway.open_attempt JOIN laneway.job USING (seq)
WHERE open_attempt.executor = 'leases';

-- The history of each job, from its rows. The complete event log, with denials, is in event_batch and in the API.
CREATE VIEW laneway.scheduler_job_events AS
WITH history (seq, ts, event_type, to_state, attempt, lease, worker, reason) AS (
    SELECT seq, created_at, 'SUBMITTED', 'QUEUED', 0, NULL, NULL, 'submitted' FROM laneway.job
    UNION ALL
    SELECT seq, opened_at, 'DISPATCHING', 'DISPATCHING', attempt, attempt_id, NULL, 'admitted' FROM laneway.attempt
    UNION ALL
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempt, attempt_id, worker, 'ack' FROM laneway.attempt WHERE started_at IS NOT NULL
    UNION ALL
    SELECT seq, closed_at, 'QUEUED', 'QUEUED', attempt, attempt_id, worker,
           CASE ended WHEN 5 THEN 'lease_expired' WHEN 7 THEN 'dispatch_timeout' WHEN 6 THEN 'handed_back' ELSE 'retry' END
    FROM laneway.attempt WHERE NOT EXISTS (SELECT 1 FROM laneway.done WHERE done.seq = attempt.seq AND done.attempt_id = attempt.attempt_id)
    UNION ALL
    SELECT seq, opened_at, 'DISPATCHING', 'DISPATCHING', attempt, attempt_id, NULL, 'admitted' FROM laneway.open_attempt
    UNION ALL
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempt, attempt_id, worker, 'ack' FROM laneway.open_attempt WHERE started_at IS NOT NULL
    UNION ALL -- The attempt that ended its job has no other row.
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempts, attempt_id, NULL, 'ack' FROM laneway.done
    WHERE started_at IS NOT NULL AND attempt_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM laneway.open_attempt WHERE open_attempt.seq = done.seq)
    UNION ALL
    SELECT seq, finished_at,
           CASE WHEN state = 4 THEN 'DONE' WHEN state = 5 AND reason IN (3, 4) THEN 'TIMEOUT' WHEN state = 5 THEN 'FAILED' ELSE 'CANCELED' END,
           CASE state WHEN 4 THEN 'DONE' WHEN 5 THEN 'FAILED' ELSE 'CANCELED' END,
           attempts, attempt_id, NULL, NULL
    FROM laneway.done
)
SELECT history.ts, encode(job.id, 'hex') AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane,
       history.event_type, history.to_state, history.attempt, encode(history.lease, 'hex') AS lease_id, history.worker, history.reason
FROM history JOIN laneway.job USING (seq);
