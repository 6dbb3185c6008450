-- How often the machine had no capacity for a waiting job, and when the next denial is recorded. Part of the status.
ALTER TABLE job ADD COLUMN denials INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN denied_until INTEGER;

DROP VIEW scheduler_jobs;
CREATE VIEW scheduler_jobs AS
SELECT lower(hex(job.id)) AS job_id, job.tenant, job.agent AS addon_id, job.kind AS job_type, job.lane, job.cost AS cost_units, job.priority,
       CASE WHEN done.state = 4 THEN 'DONE'
            WHEN done.state = 5 THEN 'FAILED'
            WHEN done.state IS NOT NULL THEN 'CANCELED'
            WHEN open_attempt.state = 2 THEN 'DISPATCHING'
            WHEN open_attempt.state = 3 THEN 'RUNNING'
            ELSE 'QUEUED' END AS state,
       coalesce(done.attempts, open_attempt.attempt, job.attempts) + job.denials AS attempts,
       CASE WHEN done.seq IS NULL AND open_attempt.seq IS NULL THEN coalesce(job.wake_at, job.denied_until) END AS next_earliest_start_at,
       lower(hex(open_attempt.attempt_id)) AS lease_id, open_attempt.worker, open_attempt.pid,
       job.created_at, done.finished_at
FROM job LEFT JOIN open_attempt USING (seq) LEFT JOIN done USING (seq);
