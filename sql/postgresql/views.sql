-- What people and programs read. The columns stay: a new one is added at the end, so that views and grants of others survive.
--
-- None shows args, meta or a claim's token, but jobs_payloads, which is granted apart. Views read the tables with their
-- owner's rights; whoever may read a view needs none on a table.

-- One row a job.
CREATE OR REPLACE VIEW jobs_list AS
    SELECT j.id, j.name, j.queue, j.state, j.priority, j.run_at, j.bucket, j.attempts, j.max_attempts, j.timeout_ms, j.worker, j.lease_until,
           j.cancel_at, j.started_at, j.finished_at, j.dead_reason, j.unique_key, j.tenant, j.batch_id, j.enqueued_at, j.settled_as
      FROM jobs j;

CREATE OR REPLACE VIEW jobs_payloads AS
    SELECT j.id, j.args, j.meta
      FROM jobs j;

-- One row a failed attempt.
CREATE OR REPLACE VIEW jobs_errors AS
    SELECT f.job_id, f.attempt, f.worker, f.kind, f.type, f.message, f.stack, f.started_at, f.failed_at, j.name, j.queue, f.id
      FROM jobs_failures f
      JOIN jobs j ON j.id = f.job_id;

-- Jobs by queue and state; how long the longest due one has waited.
CREATE OR REPLACE VIEW jobs_status AS
    SELECT j.queue, j.state, count(*) AS count,
           CASE j.state WHEN 'pending' THEN floor(extract(epoch FROM jobs_now() - min(j.run_at)) * 1000)::bigint END AS oldest_wait_ms,
           EXISTS (SELECT FROM jobs_paused p WHERE p.queue = j.queue) AS paused
      FROM jobs j
     GROUP BY j.queue, j.state;

-- Waiting work by queue and name.
CREATE OR REPLACE VIEW jobs_backlog AS
    SELECT j.queue, j.name,
           count(*) FILTER (WHERE j.state = 'scheduled') AS scheduled,
           count(*) FILTER (WHERE j.state = 'pending') AS due,
           min(j.run_at) AS oldest_run_at
      FROM jobs j
     WHERE j.state IN ('scheduled', 'pending')
     GROUP BY j.queue, j.name;

-- Work in hand.
CREATE OR REPLACE VIEW jobs_active AS
    SELECT j.id, j.name, j.queue, j.worker, j.attempts AS attempt, j.max_attempts, j.started_at,
           floor(extract(epoch FROM jobs_now() - j.started_at) * 1000)::bigint AS age_ms,
           floor(extract(epoch FROM j.lease_until - jobs_now()) * 1000)::bigint AS lease_left_ms,
           j.bucket, j.tenant, j.cancel_at
      FROM jobs j
     WHERE j.state = 'running';

-- Jobs that failed for good, with the failure that was the last.
CREATE OR REPLACE VIEW jobs_dead AS
    SELECT j.id, j.name, j.queue, j.dead_reason, j.attempts, j.max_attempts, j.finished_at, f.kind, f.type, f.message, f.failed_at, j.tenant, j.batch_id
      FROM jobs j
      LEFT JOIN LATERAL (
           SELECT l.kind, l.type, l.message, l.failed_at
             FROM jobs_failures l
            WHERE l.job_id = j.id
            ORDER BY l.id DESC
            LIMIT 1) AS f ON true
     WHERE j.state = 'dead';

-- How long the last attempt of done jobs took.
CREATE OR REPLACE VIEW jobs_timings AS
    SELECT t.queue, t.name, count(*) AS runs,
           round(min(t.ms))::bigint AS min_ms,
           round(avg(t.ms))::bigint AS average_ms,
           round(percentile_cont(0.95) WITHIN GROUP (ORDER BY t.ms))::bigint AS p95_ms,
           round(max(t.ms))::bigint AS max_ms
      FROM (SELECT j.queue, j.name, greatest(0, extract(epoch FROM j.finished_at - j.started_at) * 1000)::double precision AS ms
              FROM jobs j
             WHERE j.state = 'done') AS t
     GROUP BY t.queue, t.name;

-- The bound of each group, and who holds its slots: a row a slot, or one row where none is held.
CREATE OR REPLACE VIEW jobs_limits AS
    SELECT g.name AS "group", g.slots, s.bucket, s.slot, s.job_id, j.name, j.worker, s.taken_at
      FROM jobs_groups g
      LEFT JOIN jobs_slots s ON split_part(s.bucket, ':', 1) = g.name
      LEFT JOIN jobs j ON j.id = s.job_id;

CREATE OR REPLACE VIEW jobs_batch_status AS
    SELECT b.id, b.name, b.tenant, b.callback, b.callback_id, b.total, b.done, b.failed, b.opened_at, b.sealed_at, b.finished_at
      FROM jobs_batches b;

CREATE OR REPLACE VIEW jobs_schedule_status AS
    SELECT s.name, s.job, s.cron, s.every_ms, s.timezone, s.source, s.enabled, s.next_run_at, s.last_run_at, s.last_job_id
      FROM jobs_schedules s;

CREATE OR REPLACE VIEW jobs_worker_status AS
    SELECT w.id, w.info, w.started_at, w.seen_at, w.live_until,
           w.live_until > jobs_now() AS live,
           (SELECT count(*) FROM jobs j WHERE j.state = 'running' AND j.worker = w.id)::integer AS running
      FROM jobs_workers w;

-- Names with waiting work that no live worker performs. A worker that names none performs all.
CREATE OR REPLACE VIEW jobs_orphans AS
    WITH performed AS (
        SELECT CASE json_typeof(w.info::json -> 'names') WHEN 'array' THEN n.name END AS name
          FROM jobs_workers w
          LEFT JOIN LATERAL json_array_elements_text(
               CASE json_typeof(w.info::json -> 'names') WHEN 'array' THEN w.info::json -> 'names' END) AS n(name) ON true
         WHERE w.live_until > jobs_now()
           AND (n.name IS NOT NULL OR json_typeof(w.info::json -> 'names') IS DISTINCT FROM 'array')
    )
    SELECT j.name, count(*) AS waiting, min(j.run_at) AS oldest_run_at
      FROM jobs j
     WHERE j.state IN ('scheduled', 'pending')
       AND NOT EXISTS (SELECT FROM performed p WHERE p.name = j.name OR p.name IS NULL)
     GROUP BY j.name;

CREATE OR REPLACE VIEW jobs_defined AS
    SELECT d.name, d.queue, d.priority, d.max_attempts, d.timeout_ms, d.backoff_base_ms, d.backoff_factor, d.backoff_max_ms, d.backoff_jitter,
           d.concurrency_group, d.concurrency_limit, d.concurrency_key, d.keep_done_ms, d.keep_dead_ms
      FROM jobs_definitions d;

CREATE OR REPLACE VIEW jobs_paused_queues AS
    SELECT p.queue, p.paused_at
      FROM jobs_paused p;
