-- What jobs cost, who holds their attempts, and views with the words of hosts of add-ons.

-- Units of machine capacity that the job holds while an attempt is open.
ALTER TABLE job ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;
-- Times it was set aside for workers and nobody took it. Part of the status.
ALTER TABLE job ADD COLUMN rejections INTEGER NOT NULL DEFAULT 0;
-- 1 once its deadline is near. Part of the status.
ALTER TABLE job ADD COLUMN near_deadline INTEGER NOT NULL DEFAULT 0;

-- The worker that asked for the attempt, and its process, where workers ask.
ALTER TABLE open_attempt ADD COLUMN worker TEXT;
ALTER TABLE open_attempt ADD COLUMN pid INTEGER;
ALTER TABLE attempt ADD COLUMN worker TEXT;
ALTER TABLE attempt ADD COLUMN pid INTEGER;

-- For people who look with SQL; the program itself never reads these.
CREATE VIEW scheduler_jobs AS
SELECT lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane, job.cost AS cost_units, job.priority,
       CASE WHEN done.state = 4 THEN 'DONE'
            WHEN done.state = 5 THEN 'FAILED'
            WHEN done.state IS NOT NULL THEN 'CANCELED'
            WHEN open_attempt.state = 2 THEN 'DISPATCHING'
            WHEN open_attempt.state = 3 THEN 'RUNNING'
            ELSE 'QUEUED' END AS state,
       coalesce(done.attempts, open_attempt.attempt, job.attempts) AS attempts,
       CASE WHEN done.seq IS NULL AND open_attempt.seq IS NULL THEN job.wake_at END AS next_earliest_start_at,
       lower(hex(open_attempt.attempt_id)) AS lease_id, open_attempt.worker, open_attempt.pid,
       job.created_at, done.finished_at
FROM job LEFT JOIN open_attempt USING (seq) LEFT JOIN done USING (seq);

CREATE VIEW scheduler_leases AS
SELECT lower(hex(open_attempt.attempt_id)) AS lease_id, lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id,
       job.kind AS job_type, job.cost AS cost_units, open_attempt.worker, open_attempt.pid,
       CASE open_attempt.state WHEN 2 THEN 'DISPATCHING' ELSE 'ACTIVE' END AS state,
       open_attempt.opened_at AS granted_at, open_attempt.lease_ms
FROM open_attempt JOIN job USING (seq)
WHERE open_attempt.place = 'leases';

-- What happened to each job, as its rows tell it. The whole trail, denials included, is kept in batches (event_batch) and
-- is read through the API.
CREATE VIEW scheduler_job_events AS
WITH told (seq, ts, event_type, to_state, attempt, lease, worker, reason) AS (
    SELECT seq, created_at, 'SUBMITTED', 'QUEUED', 0, NULL, NULL, 'submitted' FROM job
    UNION ALL
    SELECT seq, opened_at, 'DISPATCHING', 'DISPATCHING', attempt, attempt_id, NULL, 'admitted' FROM attempt
    UNION ALL
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempt, attempt_id, worker, 'ack' FROM attempt WHERE started_at IS NOT NULL
    UNION ALL
    SELECT seq, closed_at, 'QUEUED', 'QUEUED', attempt, attempt_id, worker,
           CASE ended WHEN 5 THEN 'lease_expired' WHEN 7 THEN 'dispatch_timeout' WHEN 6 THEN 'handed_back' ELSE 'retry' END
    FROM attempt WHERE NOT EXISTS (SELECT 1 FROM done WHERE done.seq = attempt.seq AND done.attempt_id = attempt.attempt_id)
    UNION ALL
    SELECT seq, opened_at, 'DISPATCHING', 'DISPATCHING', attempt, attempt_id, NULL, 'admitted' FROM open_attempt
    UNION ALL
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempt, attempt_id, worker, 'ack' FROM open_attempt WHERE started_at IS NOT NULL
    UNION ALL
    -- The attempt that ended its job has left no other row.
    SELECT seq, started_at, 'RUNNING', 'RUNNING', attempts, attempt_id, NULL, 'ack' FROM done
    WHERE started_at IS NOT NULL AND attempt_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM open_attempt WHERE open_attempt.seq = done.seq)
    UNION ALL
    SELECT seq, finished_at,
           CASE WHEN state = 4 THEN 'DONE' WHEN state = 5 AND reason IN (3, 4) THEN 'TIMEOUT' WHEN state = 5 THEN 'FAILED' ELSE 'CANCELED' END,
           CASE state WHEN 4 THEN 'DONE' WHEN 5 THEN 'FAILED' ELSE 'CANCELED' END,
           attempts, attempt_id, NULL, NULL
    FROM done
)
SELECT told.ts, lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane,
       told.event_type, told.to_state, told.attempt, lower(hex(told.lease)) AS lease_id, told.worker, told.reason
FROM told JOIN job USING (seq);
