-- What people and programs read. The columns stay: a new one is added at the end, so that views and grants of others survive.
--
-- None shows args, meta or a claim's token, but jobs_payloads, which is granted apart. Views read the tables with their
-- owner's rights; whoever may read a view needs none on a table. Moments are DATETIME(6) in UTC, whatever the session's time zone.

DELIMITER //

-- One row a job.
CREATE OR REPLACE VIEW jobs_list AS
    SELECT j.id, j.name, j.queue, j.state, j.priority, j.run_at, CONVERT(j.bucket USING utf8mb4) AS bucket, j.attempts, j.max_attempts, j.timeout_ms,
           j.worker, j.lease_until, j.cancel_at, j.started_at, j.finished_at, j.dead_reason, j.unique_key, j.tenant, j.batch_id, j.enqueued_at,
           j.settled_as
      FROM jobs j
//

CREATE OR REPLACE VIEW jobs_payloads AS
    SELECT j.id, j.args, j.meta
      FROM jobs j
//

-- One row a failed attempt.
CREATE OR REPLACE VIEW jobs_errors AS
    SELECT f.job_id, f.attempt, f.worker, f.kind, f.type, f.message, f.stack, f.started_at, f.failed_at, j.name, j.queue, f.id
      FROM jobs_failures f
      JOIN jobs j ON j.id = f.job_id
//

-- Jobs by queue and state; how long the longest due one has waited.
CREATE OR REPLACE VIEW jobs_status AS
    SELECT j.queue, j.state, COUNT(*) AS `count`,
           CASE j.state WHEN 'pending' THEN FLOOR(TIMESTAMPDIFF(MICROSECOND, MIN(j.run_at), (SELECT c.now FROM jobs_clock c)) / 1000) END AS oldest_wait_ms,
           EXISTS (SELECT 1 FROM jobs_paused p WHERE p.queue = j.queue) AS paused
      FROM jobs j
     GROUP BY j.queue, j.state
//

-- Waiting work by queue and name.
CREATE OR REPLACE VIEW jobs_backlog AS
    SELECT j.queue, j.name, COUNT(j.due_at) AS scheduled, COUNT(j.stage) AS due, MIN(j.run_at) AS oldest_run_at
      FROM jobs j
     WHERE j.stage IS NOT NULL
        OR j.due_at IS NOT NULL
     GROUP BY j.queue, j.name
//

-- Work in hand.
CREATE OR REPLACE VIEW jobs_active AS
    SELECT j.id, j.name, j.queue, j.worker, j.attempts AS attempt, j.max_attempts, j.started_at,
           FLOOR(TIMESTAMPDIFF(MICROSECOND, j.started_at, c.now) / 1000) AS age_ms,
           FLOOR(TIMESTAMPDIFF(MICROSECOND, c.now, j.lease_until) / 1000) AS lease_left_ms,
           CONVERT(j.bucket USING utf8mb4) AS bucket, j.tenant, j.cancel_at
      FROM jobs j
     CROSS JOIN jobs_clock c
     WHERE j.token IS NOT NULL
//

-- Jobs that failed for good, with the failure that was the last.
CREATE OR REPLACE VIEW jobs_dead AS
    SELECT j.id, j.name, j.queue, j.dead_reason, j.attempts, j.max_attempts, j.finished_at, f.kind, f.type, f.message, f.failed_at, j.tenant, j.batch_id
      FROM jobs j
      LEFT JOIN jobs_failures f ON f.id = (SELECT MAX(l.id) FROM jobs_failures l WHERE l.job_id = j.id)
     WHERE j.ended = 'dead'
//

-- How long the last attempt of done jobs took. (Neither engine has a percentile: it is drawn between the two runs beside it.)
CREATE OR REPLACE VIEW jobs_timings AS
    SELECT t.queue, t.name, COUNT(*) AS runs,
           ROUND(MIN(t.ms)) AS min_ms,
           ROUND(AVG(t.ms)) AS average_ms,
           ROUND(SUM(t.ms * GREATEST(0, 1 - ABS(t.place - (1 + 0.95 * (t.runs - 1)))))) AS p95_ms,
           ROUND(MAX(t.ms)) AS max_ms
      FROM (SELECT r.queue, r.name, r.ms,
                   ROW_NUMBER() OVER (PARTITION BY r.queue, r.name ORDER BY r.ms) AS place,
                   COUNT(*) OVER (PARTITION BY r.queue, r.name) AS runs
              FROM (SELECT j.queue, j.name, GREATEST(0, TIMESTAMPDIFF(MICROSECOND, j.started_at, j.finished_at) / 1000) AS ms
                      FROM jobs j
                     WHERE j.ended = 'done') AS r) AS t
     GROUP BY t.queue, t.name
//

-- The bound of each group, and who holds its slots: a row a slot, or one row where none is held.
CREATE OR REPLACE VIEW jobs_limits AS
    SELECT g.name AS `group`, g.slots, CONVERT(s.bucket USING utf8mb4) AS bucket, s.slot, s.job_id, j.name, j.worker, s.taken_at
      FROM jobs_groups g
      LEFT JOIN jobs_slots s ON CONVERT(SUBSTRING_INDEX(s.bucket, ':', 1) USING utf8mb4) = g.name
      LEFT JOIN jobs j ON j.id = s.job_id
//

CREATE OR REPLACE VIEW jobs_batch_status AS
    SELECT b.id, b.name, b.tenant, b.callback, b.callback_id, b.total, b.done, b.failed, b.opened_at, b.sealed_at, b.finished_at
      FROM jobs_batches b
//

CREATE OR REPLACE VIEW jobs_schedule_status AS
    SELECT s.name, s.job, s.cron, s.every_ms, s.timezone, s.source, s.enabled, s.next_run_at, s.last_run_at, s.last_job_id
      FROM jobs_schedules s
//

CREATE OR REPLACE VIEW jobs_worker_status AS
    SELECT w.id, w.info, w.started_at, w.seen_at, w.live_until,
           w.live_until > c.now AS live,
           (SELECT COUNT(*) FROM jobs j WHERE j.token IS NOT NULL AND j.worker = w.id) AS running
      FROM jobs_workers w
     CROSS JOIN jobs_clock c
//

-- Names with waiting work that no live worker performs. A worker that names none performs all.
CREATE OR REPLACE VIEW jobs_orphans AS
    SELECT o.name, o.waiting, o.oldest_run_at
      FROM (SELECT j.name, COUNT(*) AS waiting, MIN(j.run_at) AS oldest_run_at
              FROM jobs j
             WHERE j.stage IS NOT NULL
                OR j.due_at IS NOT NULL
             GROUP BY j.name) AS o
     WHERE NOT EXISTS (
               SELECT 1
                 FROM jobs_workers w
                WHERE w.live_until > (SELECT c.now FROM jobs_clock c)
                  AND COALESCE(JSON_TYPE(JSON_EXTRACT(w.info, '$.names')), 'NULL') <> 'ARRAY')
       AND NOT EXISTS (
               SELECT 1
                 FROM jobs_workers w
                 STRAIGHT_JOIN JSON_TABLE(w.info, '$.names[*]' COLUMNS (name VARCHAR(190) CHARACTER SET utf8mb4 PATH '$')) AS n
                WHERE w.live_until > (SELECT c.now FROM jobs_clock c)
                  AND n.name COLLATE utf8mb4_bin = o.name)
//

CREATE OR REPLACE VIEW jobs_defined AS
    SELECT d.name, d.queue, d.priority, d.max_attempts, d.timeout_ms, d.backoff_base_ms, d.backoff_factor, d.backoff_max_ms, d.backoff_jitter,
           d.concurrency_group, d.concurrency_limit, d.concurrency_key, d.keep_done_ms, d.keep_dead_ms
      FROM jobs_definitions d
//

CREATE OR REPLACE VIEW jobs_paused_queues AS
    SELECT p.queue, p.paused_at
      FROM jobs_paused p
//
