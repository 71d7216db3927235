-- What people and programs read. The columns stay: a new one is added at the end, so that what others built on them lasts.
--
-- None shows args, meta or a claim's token, but jobs_payloads. Moments are ISO 8601 text in UTC.

-- One row a job.
DROP VIEW IF EXISTS jobs_list;
CREATE VIEW jobs_list
       (id, name, queue, state, priority, run_at, bucket, attempts, max_attempts, timeout_ms, worker, lease_until,
        cancel_at, started_at, finished_at, dead_reason, unique_key, tenant, batch_id, enqueued_at, settled_as) AS
SELECT id, name, queue, state, priority,
       strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000.0, 'unixepoch'),
       bucket, attempts, max_attempts, timeout_ms, worker,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', cancel_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch'),
       dead_reason, unique_key, tenant, batch_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', enqueued_at / 1000.0, 'unixepoch'),
       settled_as
  FROM jobs;

DROP VIEW IF EXISTS jobs_payloads;
CREATE VIEW jobs_payloads (id, args, meta) AS
SELECT id, args, meta
  FROM jobs;

-- One row a failed attempt.
DROP VIEW IF EXISTS jobs_errors;
CREATE VIEW jobs_errors (job_id, attempt, worker, kind, type, message, stack, started_at, failed_at, name, queue, id) AS
SELECT f.job_id, f.attempt, f.worker, f.kind, f.type, f.message, f.stack,
       strftime('%Y-%m-%dT%H:%M:%fZ', f.started_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', f.failed_at / 1000.0, 'unixepoch'),
       j.name, j.queue, f.id
  FROM jobs_failures AS f
  JOIN jobs AS j ON j.id = f.job_id;

-- Jobs by queue and state; how long the longest due one has waited.
DROP VIEW IF EXISTS jobs_status;
CREATE VIEW jobs_status (queue, state, count, oldest_wait_ms, paused) AS
SELECT queue, state, count(*),
       CASE state WHEN 'pending' THEN (SELECT now FROM jobs_clock) - min(run_at) END,
       queue IN (SELECT queue FROM jobs_paused)
  FROM jobs
 GROUP BY queue, state;

-- Waiting work by queue and name.
DROP VIEW IF EXISTS jobs_backlog;
CREATE VIEW jobs_backlog (queue, name, scheduled, due, oldest_run_at) AS
SELECT queue, name,
       count(*) FILTER (WHERE state = 'scheduled'),
       count(*) FILTER (WHERE state = 'pending'),
       strftime('%Y-%m-%dT%H:%M:%fZ', min(run_at) / 1000.0, 'unixepoch')
  FROM jobs
 WHERE state IN ('scheduled', 'pending')
 GROUP BY queue, name;

-- Work in hand.
DROP VIEW IF EXISTS jobs_active;
CREATE VIEW jobs_active
       (id, name, queue, worker, attempt, max_attempts, started_at, age_ms, lease_left_ms, bucket, tenant, cancel_at) AS
SELECT id, name, queue, worker, attempts, max_attempts,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000.0, 'unixepoch'),
       (SELECT now FROM jobs_clock) - started_at,
       lease_until - (SELECT now FROM jobs_clock),
       bucket, tenant,
       strftime('%Y-%m-%dT%H:%M:%fZ', cancel_at / 1000.0, 'unixepoch')
  FROM jobs INDEXED BY jobs_held
 WHERE state = 'running';

-- Jobs that failed for good, with the failure that was the last.
DROP VIEW IF EXISTS jobs_dead;
CREATE VIEW jobs_dead
       (id, name, queue, dead_reason, attempts, max_attempts, finished_at, kind, type, message, failed_at, tenant, batch_id) AS
SELECT j.id, j.name, j.queue, j.dead_reason, j.attempts, j.max_attempts,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.finished_at / 1000.0, 'unixepoch'),
       f.kind, f.type, f.message,
       strftime('%Y-%m-%dT%H:%M:%fZ', f.failed_at / 1000.0, 'unixepoch'),
       j.tenant, j.batch_id
  FROM jobs AS j
  LEFT JOIN jobs_failures AS f ON f.id = (SELECT max(id) FROM jobs_failures WHERE job_id = j.id)
 WHERE j.state = 'dead'
   AND j.finished_at IS NOT NULL;

-- How long the last attempt of done jobs took.
DROP VIEW IF EXISTS jobs_timings;
CREATE VIEW jobs_timings (queue, name, runs, min_ms, average_ms, p95_ms, max_ms) AS
SELECT queue, name, count(*), min(ms),
       CAST(round(avg(ms)) AS INTEGER),
       min(ms) FILTER (WHERE place >= 0.95 * runs),
       max(ms)
  FROM (SELECT queue, name, ms,
               row_number() OVER (PARTITION BY queue, name ORDER BY ms) AS place,
               count(*) OVER (PARTITION BY queue, name) AS runs
          FROM (SELECT queue, name, max(0, finished_at - started_at) AS ms
                  FROM jobs
                 WHERE state = 'done'
                   AND finished_at IS NOT NULL))
 GROUP BY queue, name;

-- The bound of each group, and who holds its slots: a row a slot, or one row where none is held.
DROP VIEW IF EXISTS jobs_limits;
CREATE VIEW jobs_limits ("group", slots, bucket, slot, job_id, name, worker, taken_at) AS
SELECT g.name, g.slots, s.bucket, s.slot, s.job_id, j.name, j.worker,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.taken_at / 1000.0, 'unixepoch')
  FROM jobs_groups AS g
  LEFT JOIN jobs_slots AS s ON substr(s.bucket, 1, instr(s.bucket || ':', ':') - 1) = g.name
  LEFT JOIN jobs AS j ON j.id = s.job_id;

DROP VIEW IF EXISTS jobs_batch_status;
CREATE VIEW jobs_batch_status
       (id, name, tenant, callback, callback_id, total, done, failed, opened_at, sealed_at, finished_at) AS
SELECT id, name, tenant, callback, callback_id, total, done, failed,
       strftime('%Y-%m-%dT%H:%M:%fZ', opened_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', sealed_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000.0, 'unixepoch')
  FROM jobs_batches;

DROP VIEW IF EXISTS jobs_schedule_status;
CREATE VIEW jobs_schedule_status
       (name, job, cron, every_ms, timezone, source, enabled, next_run_at, last_run_at, last_job_id) AS
SELECT name, job, cron, every_ms, timezone, source, enabled,
       strftime('%Y-%m-%dT%H:%M:%fZ', next_run_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', last_run_at / 1000.0, 'unixepoch'),
       last_job_id
  FROM jobs_schedules;

DROP VIEW IF EXISTS jobs_worker_status;
CREATE VIEW jobs_worker_status (id, info, started_at, seen_at, live_until, live, running) AS
SELECT w.id, w.info,
       strftime('%Y-%m-%dT%H:%M:%fZ', w.started_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', w.seen_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', w.live_until / 1000.0, 'unixepoch'),
       w.live_until > (SELECT now FROM jobs_clock),
       (SELECT count(*) FROM jobs AS j INDEXED BY jobs_held WHERE j.state = 'running' AND j.worker = w.id)
  FROM jobs_workers AS w;

-- Names with waiting work that no live worker performs. A worker that names none performs all.
DROP VIEW IF EXISTS jobs_orphans;
CREATE VIEW jobs_orphans (name, waiting, oldest_run_at) AS
SELECT name, count(*), strftime('%Y-%m-%dT%H:%M:%fZ', min(run_at) / 1000.0, 'unixepoch')
  FROM jobs
 WHERE state IN ('scheduled', 'pending')
   AND NOT EXISTS (SELECT 1
                     FROM jobs_workers AS w
                    WHERE w.live_until > (SELECT now FROM jobs_clock)
                      AND (json_type(w.info, '$.names') IS NOT 'array'
                           OR jobs.name IN (SELECT value FROM json_each(w.info, '$.names'))))
 GROUP BY name;

DROP VIEW IF EXISTS jobs_defined;
CREATE VIEW jobs_defined
       (name, queue, priority, max_attempts, timeout_ms, backoff_base_ms, backoff_factor, backoff_max_ms, backoff_jitter,
        concurrency_group, concurrency_limit, concurrency_key, keep_done_ms, keep_dead_ms) AS
SELECT name, queue, priority, max_attempts, timeout_ms, backoff_base_ms, backoff_factor, backoff_max_ms, backoff_jitter,
       concurrency_group, concurrency_limit, concurrency_key, keep_done_ms, keep_dead_ms
  FROM jobs_definitions;

DROP VIEW IF EXISTS jobs_paused_queues;
CREATE VIEW jobs_paused_queues (queue, paused_at) AS
SELECT queue, strftime('%Y-%m-%dT%H:%M:%fZ', paused_at / 1000.0, 'unixepoch')
  FROM jobs_paused;
