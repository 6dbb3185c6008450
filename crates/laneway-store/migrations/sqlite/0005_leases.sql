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

-- For people who look with SQL; the program itself never reads these. Events are kept in batches (event_batch) and are
-- read through the API.
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
