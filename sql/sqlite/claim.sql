-- jobs_claim: takes the next jobs for a worker.
--
-- Two claimers never get one job, because there is one writer and the rows turn to `running` in the statement that chose
-- them. A claim whose token holds rows already answers those and takes nothing, so it can be repeated when its reply was
-- lost. A limited job is claimed together with a slot of its bucket, in the same statement.
--
-- What a claim costs does not depend on what waits. Due work is promoted a bounded number at a time. The line, the index
-- of unlimited pending jobs in the order of claiming, is read for a bounded window from its head; only if that is full of
-- work for others are the lanes (queue and name) stepped through, one probe each. Limited jobs are walked lane by lane,
-- and one whose bucket is full, or is not wanted, costs one probe however many jobs wait in it. A claim that finds nothing
-- writes nothing.
--
--     INSERT INTO jobs_claim (worker, token, options) VALUES ('shell', '6f9f5d0e-…', '{"queues": ["mailers"], "max_jobs": 10}');
--     SELECT id, name, args FROM jobs_claimed WHERE token = '6f9f5d0e-…';

DROP VIEW IF EXISTS jobs_claimed;
CREATE VIEW jobs_claimed
       (id, name, queue, args, attempt, max_attempts, timeout_ms, priority, tenant, batch_id, meta, unique_key,
        enqueued_at, run_at, token, lease_until) AS
SELECT id, name, queue, args, attempts, max_attempts, timeout_ms, priority, tenant, batch_id, meta, unique_key,
       strftime('%Y-%m-%dT%H:%M:%fZ', enqueued_at / 1000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000.0, 'unixepoch'),
       token,
       strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000.0, 'unixepoch')
  FROM jobs INDEXED BY jobs_held
 WHERE state = 'running';

DROP VIEW IF EXISTS jobs_claim;
CREATE VIEW jobs_claim (worker, token, options) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_claim_called INSTEAD OF INSERT ON jobs_claim
BEGIN
    SELECT CASE WHEN typeof(new.worker) <> 'text' OR length(new.worker) NOT BETWEEN 1 AND 190 OR instr(new.worker, char(0)) > 0
                THEN RAISE(ABORT, 'PJ010 the worker is empty, too long or not text; give 1 to 190 characters')
                WHEN new.token IS NULL
                  OR new.token NOT GLOB '????????-????-????-????-????????????'
                  OR length(replace(new.token, '-', '')) <> 32
                  OR replace(new.token, '-', '') GLOB '*[^0-9A-Fa-f]*'
                THEN RAISE(ABORT, 'PJ003 the token is not a UUID; make a new one for each claim') END;

    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE key
           WHEN 'queues' THEN CASE
                WHEN type <> 'array' OR EXISTS (SELECT 1 FROM json_each(new.options, '$.queues') AS each WHERE each.type <> 'text')
                THEN RAISE(ABORT, 'PJ003 option queues is not an array of texts; give names of queues, or null for all') END
           WHEN 'names' THEN CASE
                WHEN type <> 'array' OR EXISTS (SELECT 1 FROM json_each(new.options, '$.names') AS each WHERE each.type <> 'text')
                THEN RAISE(ABORT, 'PJ003 option names is not an array of texts; give names of jobs, or null for all') END
           WHEN 'max_jobs' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 1 AND 1000
                THEN RAISE(ABORT, 'PJ003 option max_jobs is not a whole number from 1 to 1000; claim again for more') END
           WHEN 'lease_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option lease_ms is not a whole number from 0; give milliseconds') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option; options: queues, names, max_jobs, lease_ms') END
      FROM json_each(new.options)
     WHERE type <> 'null' OR key NOT IN ('queues', 'names', 'max_jobs', 'lease_ms');

    INSERT INTO jobs__claim (worker, token, queues, names, max_jobs, lease_ms, now)
    VALUES (new.worker,
            lower(new.token),
            nullif(new.options -> 'queues', 'null'),
            nullif(new.options -> 'names', 'null'),
            coalesce(new.options ->> 'max_jobs', 1),
            coalesce(new.options ->> 'lease_ms', 300000),
            (SELECT now FROM jobs_clock));
END;

-- A claim that is not a repeat. The jobs are chosen from the head of the line and from the candidates that the steps before
-- have found elsewhere. Each step is a trigger of its own whose WHEN says if it is needed: a step that is not costs a probe.
DROP VIEW IF EXISTS jobs__claim;
CREATE VIEW jobs__claim (worker, token, queues, names, max_jobs, lease_ms, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__claim_called INSTEAD OF INSERT ON jobs__claim
WHEN NOT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_held WHERE state = 'running' AND token = new.token)
BEGIN
    INSERT INTO jobs__promote (most, now)
    VALUES (max(100, 2 * new.max_jobs), new.now);

    INSERT INTO jobs__look_at_limited (queues, names, max_jobs)
    VALUES (new.queues, new.names, new.max_jobs);

    INSERT INTO jobs__look_at_lanes (queues, names, max_jobs, reach)
    VALUES (new.queues, new.names, new.max_jobs, max(100, 4 * new.max_jobs));

    UPDATE jobs
       SET state = 'running',
           attempts = attempts + 1,
           token = new.token,
           worker = new.worker,
           lease_until = new.now + new.lease_ms,
           started_at = new.now
     WHERE rowid IN (SELECT job
                       FROM (SELECT priority, run_at, id, job
                               FROM (SELECT priority, run_at, id, job
                                       FROM (SELECT rowid AS job, priority, run_at, id, queue, name
                                               FROM jobs INDEXED BY jobs_line
                                              WHERE state = 'pending'
                                                AND bucket IS NULL
                                              ORDER BY priority, run_at, id
                                              LIMIT max(100, 4 * new.max_jobs))
                                      WHERE (new.queues IS NULL OR queue IN (SELECT value FROM json_each(new.queues)))
                                        AND (new.names IS NULL OR name IN (SELECT value FROM json_each(new.names)))
                                        AND queue NOT IN (SELECT queue FROM jobs_paused)
                                      LIMIT new.max_jobs)
                              UNION
                             SELECT priority, run_at, id, job
                               FROM jobs__candidates
                              ORDER BY priority, run_at, id
                              LIMIT new.max_jobs));

    DELETE FROM jobs__candidates WHERE true;

    INSERT INTO jobs__hold_slots (token, now)
    VALUES (new.token, new.now);
END;

-- Makes scheduled jobs pending whose moment has come, the oldest first.
DROP VIEW IF EXISTS jobs__promote;
CREATE VIEW jobs__promote (most, now) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__promote_called INSTEAD OF INSERT ON jobs__promote
WHEN EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled' AND run_at <= new.now)
BEGIN
    UPDATE jobs
       SET state = 'pending'
     WHERE rowid IN (SELECT rowid
                       FROM jobs INDEXED BY jobs_due
                      WHERE state = 'scheduled'
                        AND run_at <= new.now
                      ORDER BY run_at, id
                      LIMIT new.most);
END;

-- When the line, as far as it is read, does not yield enough and goes on behind: makes candidates of what stands at the
-- head of the wanted lanes, taken together. (A plus sign keeps the affinity of a column out of a comparison, without
-- which SQLite would search by the first of several columns only.)
DROP VIEW IF EXISTS jobs__look_at_lanes;
CREATE VIEW jobs__look_at_lanes (queues, names, max_jobs, reach) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__look_at_lanes_called INSTEAD OF INSERT ON jobs__look_at_lanes
WHEN NOT EXISTS (SELECT 1
                   FROM (SELECT queue, name
                           FROM jobs INDEXED BY jobs_line
                          WHERE state = 'pending'
                            AND bucket IS NULL
                          ORDER BY priority, run_at, id
                          LIMIT new.reach)
                  WHERE (new.queues IS NULL OR queue IN (SELECT value FROM json_each(new.queues)))
                    AND (new.names IS NULL OR name IN (SELECT value FROM json_each(new.names)))
                    AND queue NOT IN (SELECT queue FROM jobs_paused)
                  LIMIT 1 OFFSET new.max_jobs - 1)
 AND EXISTS (SELECT 1
               FROM jobs INDEXED BY jobs_line
              WHERE state = 'pending'
                AND bucket IS NULL
              LIMIT 1 OFFSET new.reach)
BEGIN
    INSERT INTO jobs__candidates (job, priority, run_at, id)
    SELECT job, priority, run_at, id
      FROM (WITH RECURSIVE
            -- Each lane by its first job: the next name of the queue, or the first one of the next queue.
            lane (job, queue, name) AS (
                SELECT NULL, '', ''
                 UNION ALL
                SELECT first.rowid, first.queue, first.name
                  FROM lane
                 CROSS JOIN jobs AS first
                    ON first.rowid = coalesce(
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_lanes
                         WHERE state = 'pending'
                           AND bucket IS NULL
                           AND queue = lane.queue
                           AND name > lane.name
                         ORDER BY name, priority, run_at, id
                         LIMIT 1),
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_lanes
                         WHERE state = 'pending'
                           AND bucket IS NULL
                           AND queue > lane.queue
                         ORDER BY queue, name, priority, run_at, id
                         LIMIT 1))),
            -- The best head goes first, and the next job of its lane becomes a head.
            head (job, queue, name, priority, run_at, id) AS (
                SELECT first.rowid, first.queue, first.name, first.priority, first.run_at, first.id
                  FROM lane
                 CROSS JOIN jobs AS first ON first.rowid = lane.job
                 WHERE (new.queues IS NULL OR lane.queue IN (SELECT value FROM json_each(new.queues)))
                   AND (new.names IS NULL OR lane.name IN (SELECT value FROM json_each(new.names)))
                   AND lane.queue NOT IN (SELECT queue FROM jobs_paused)
                 UNION ALL
                SELECT next.rowid, next.queue, next.name, next.priority, next.run_at, next.id
                  FROM head
                 CROSS JOIN jobs AS next
                    ON next.rowid = (SELECT rowid
                                       FROM jobs INDEXED BY jobs_lanes
                                      WHERE state = 'pending'
                                        AND bucket IS NULL
                                        AND queue = head.queue
                                        AND name = head.name
                                        AND (priority, run_at, id) > (+head.priority, +head.run_at, +head.id)
                                      ORDER BY priority, run_at, id
                                      LIMIT 1)
                 ORDER BY priority, run_at, id
                 LIMIT new.max_jobs)
            SELECT job, priority, run_at, id FROM head);
END;

-- Makes candidates of limited jobs whose bucket has room. In each wanted lane the walk goes from bucket to bucket, the
-- lowest priority first and each priority once round, on from where the last claim has got to, until it has found as many
-- with room as jobs are asked for. One job of each comes first; if that is not enough, a second of each, and so on, as far
-- as there is room.
DROP VIEW IF EXISTS jobs__look_at_limited;
CREATE VIEW jobs__look_at_limited (queues, names, max_jobs) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__look_at_limited_called INSTEAD OF INSERT ON jobs__look_at_limited
WHEN EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_limited WHERE state = 'pending' AND bucket IS NOT NULL)
BEGIN
    INSERT INTO jobs__candidates (job, priority, run_at, id)
    SELECT job, priority, run_at, id
      FROM (WITH RECURSIVE
            lane (queue, name) AS (
                SELECT '', ''
                 UNION ALL
                SELECT first.queue, first.name
                  FROM lane
                 CROSS JOIN jobs AS first
                    ON first.rowid = coalesce(
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_limited
                         WHERE state = 'pending'
                           AND bucket IS NOT NULL
                           AND queue = lane.queue
                           AND name > lane.name
                         ORDER BY name
                         LIMIT 1),
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_limited
                         WHERE state = 'pending'
                           AND bucket IS NOT NULL
                           AND queue > lane.queue
                         ORDER BY queue, name
                         LIMIT 1))),
            -- Each bucket by its first job: the next one of this lap (up to the last bucket, then up to the start), or the
            -- first one of the second lap, or of the next priority.
            walk (job, queue, name, start, priority, bucket, run_at, id, room, found) AS MATERIALIZED (
                SELECT NULL, lane.queue, lane.name, coalesce(t.bucket, ''), -32769, '', NULL, NULL, 0, 0
                  FROM lane
                  LEFT JOIN jobs__turns AS t ON t.queue = lane.queue AND t.name = lane.name
                 WHERE (new.queues IS NULL OR lane.queue IN (SELECT value FROM json_each(new.queues)))
                   AND (new.names IS NULL OR lane.name IN (SELECT value FROM json_each(new.names)))
                   AND lane.queue NOT IN (SELECT queue FROM jobs_paused)
                 UNION ALL
                SELECT next.rowid, next.queue, next.name, walk.start, next.priority, next.bucket, next.run_at, next.id,
                       (SELECT slots
                          FROM jobs_groups
                         WHERE name = substr(next.bucket, 1, instr(next.bucket || ':', ':') - 1))
                       - (SELECT count(*) FROM jobs_slots WHERE bucket = next.bucket),
                       walk.found + (walk.room > 0)
                  FROM walk
                 CROSS JOIN jobs AS next
                    ON next.rowid = coalesce(
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_limited
                         WHERE state = 'pending'
                           AND bucket IS NOT NULL
                           AND queue = walk.queue
                           AND name = walk.name
                           AND priority = walk.priority
                           AND bucket > walk.bucket
                           AND bucket <= CASE WHEN walk.bucket <= walk.start THEN walk.start ELSE char(1114111) END
                         ORDER BY bucket, run_at, id
                         LIMIT 1),
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_limited
                         WHERE state = 'pending'
                           AND bucket IS NOT NULL
                           AND queue = walk.queue
                           AND name = walk.name
                           AND priority = walk.priority
                           AND bucket <= walk.start
                           AND walk.bucket > walk.start
                         ORDER BY bucket, run_at, id
                         LIMIT 1),
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_limited
                         WHERE state = 'pending'
                           AND bucket IS NOT NULL
                           AND queue = walk.queue
                           AND name = walk.name
                           AND priority = (SELECT priority
                                             FROM jobs INDEXED BY jobs_limited
                                            WHERE state = 'pending'
                                              AND bucket IS NOT NULL
                                              AND queue = walk.queue
                                              AND name = walk.name
                                              AND priority > walk.priority
                                            ORDER BY priority
                                            LIMIT 1)
                           AND bucket > walk.start
                         ORDER BY bucket, run_at, id
                         LIMIT 1),
                       (SELECT rowid
                          FROM jobs INDEXED BY jobs_limited
                         WHERE state = 'pending'
                           AND bucket IS NOT NULL
                           AND queue = walk.queue
                           AND name = walk.name
                           AND priority > walk.priority
                         ORDER BY priority, bucket, run_at, id
                         LIMIT 1))
                 WHERE walk.found + (walk.room > 0) < new.max_jobs),
            round (job, queue, name, priority, bucket, run_at, id, room, number) AS (
                SELECT job, queue, name, priority, bucket, run_at, id, room, 1 AS number
                  FROM walk
                 WHERE room > 0
                 UNION ALL
                SELECT next.rowid, next.queue, next.name, next.priority, next.bucket, next.run_at, next.id,
                       round.room, round.number + 1
                  FROM round
                 CROSS JOIN jobs AS next
                    ON next.rowid = (SELECT rowid
                                       FROM jobs INDEXED BY jobs_limited
                                      WHERE state = 'pending'
                                        AND bucket IS NOT NULL
                                        AND queue = round.queue
                                        AND name = round.name
                                        AND priority = round.priority
                                        AND bucket = round.bucket
                                        AND (run_at, id) > (+round.run_at, +round.id)
                                      ORDER BY run_at, id
                                      LIMIT 1)
                 WHERE round.number < round.room
                   AND (SELECT count(*) FROM walk WHERE room > 0) < new.max_jobs
                 ORDER BY priority, number, run_at, id
                 LIMIT 4 * new.max_jobs)
            -- Several lanes may lead to one bucket, and share its room.
            SELECT job, priority, run_at, id
              FROM (SELECT job, priority, run_at, id, room,
                           row_number() OVER (PARTITION BY bucket ORDER BY priority, number, run_at, id) AS turn
                      FROM round)
             WHERE turn <= room
             ORDER BY priority, turn, run_at, id
             LIMIT new.max_jobs);
END;

-- Gives each limited job of a claim its slot, and puts back what must not be performed: a job that is not in the bucket
-- its definition says (it came back from an attempt, or was written by hand) goes into the right one, and one for which
-- there is no slot after all waits on.
DROP VIEW IF EXISTS jobs__hold_slots;
CREATE VIEW jobs__hold_slots (token, now) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__hold_slots_called INSTEAD OF INSERT ON jobs__hold_slots
WHEN EXISTS (SELECT 1 FROM jobs_groups)
BEGIN
    UPDATE jobs
       SET state = 'pending',
           attempts = attempts - 1,
           token = NULL,
           worker = NULL,
           lease_until = NULL,
           bucket = (SELECT bucket FROM jobs__bucket_of WHERE job = jobs.rowid)
     WHERE rowid IN (SELECT j.rowid
                       FROM jobs AS j INDEXED BY jobs_held
                      CROSS JOIN jobs_definitions AS d
                      WHERE j.state = 'running'
                        AND j.token = new.token
                        AND d.name = j.name
                        AND d.concurrency_group IS NOT substr(j.bucket, 1, instr(j.bucket || ':', ':') - 1));

    -- These jobs were pending: a slot that stands in the name of one is not valid.
    DELETE FROM jobs_slots
     WHERE job_id IN (SELECT id
                        FROM jobs INDEXED BY jobs_held
                       WHERE state = 'running'
                         AND token = new.token
                         AND bucket IS NOT NULL);

    INSERT INTO jobs__take_slot (bucket, job_id, token, now)
    SELECT bucket, id, token, new.now
      FROM jobs INDEXED BY jobs_held
     WHERE state = 'running'
       AND token = new.token
       AND bucket IS NOT NULL
     ORDER BY priority, run_at, id;

    UPDATE jobs
       SET state = 'pending',
           attempts = attempts - 1,
           token = NULL,
           worker = NULL,
           lease_until = NULL
     WHERE rowid IN (SELECT j.rowid
                       FROM jobs AS j INDEXED BY jobs_held
                      WHERE j.state = 'running'
                        AND j.token = new.token
                        AND j.bucket IS NOT NULL
                        AND NOT EXISTS (SELECT 1 FROM jobs_slots AS s WHERE s.job_id = j.id));

    -- Whose turn it was: in each lane the bucket that came last on the way round.
    INSERT INTO jobs__turns (queue, name, bucket)
    SELECT j.queue, j.name, substr(max((j.bucket <= coalesce(t.bucket, '')) || j.bucket), 2)
      FROM jobs AS j INDEXED BY jobs_held
      LEFT JOIN jobs__turns AS t ON t.queue = j.queue AND t.name = j.name
     WHERE j.state = 'running'
       AND j.token = new.token
       AND j.bucket IS NOT NULL
     GROUP BY j.queue, j.name
        ON CONFLICT (queue, name) DO UPDATE SET bucket = excluded.bucket;
END;

-- Whether there may be work for somebody: what a sleeping worker looks at when the database has changed.
DROP VIEW IF EXISTS jobs__work;
CREATE VIEW jobs__work (waits) AS
SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_line WHERE state = 'pending' AND bucket IS NULL)
    OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_limited WHERE state = 'pending' AND bucket IS NOT NULL)
    OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled' AND run_at <= (SELECT now FROM jobs_clock));
