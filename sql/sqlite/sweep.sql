-- jobs_sweep: promotes, rescues and prunes, a bounded number of each.
--
-- Any number of workers may sweep: each step finds by an index what is left to do, and does it in the statement that found
-- it. A lost claim is settled like any failure, by the token that held it, so that whoever comes back late finds it taken.
--
--     INSERT INTO jobs_sweep (options) VALUES ('{"limit": 1000}');
--     SELECT * FROM jobs_swept;

DROP VIEW IF EXISTS jobs_swept;
CREATE VIEW jobs_swept (promoted, rescued, buried, slots_freed, batches_finished, pruned) AS
SELECT coalesce(sum(answer) FILTER (WHERE id = 'promoted'), 0),
       coalesce(sum(answer) FILTER (WHERE id = 'rescued'), 0),
       coalesce(sum(answer) FILTER (WHERE id = 'buried'), 0),
       coalesce(sum(answer) FILTER (WHERE id = 'slots_freed'), 0),
       coalesce(sum(answer) FILTER (WHERE id = 'batches_finished'), 0),
       coalesce(sum(answer) FILTER (WHERE id = 'pruned'), 0)
  FROM jobs__replies
 WHERE position < -1;

DROP VIEW IF EXISTS jobs_sweep;
CREATE VIEW jobs_sweep (options) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_sweep_called INSTEAD OF INSERT ON jobs_sweep
BEGIN
    DELETE FROM jobs__replies;

    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE key
           WHEN 'limit' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 1 AND 100000
                THEN RAISE(ABORT, 'PJ003 option limit is not a whole number from 1 to 100000; it is the most that each step does') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option; options: limit') END
      FROM json_each(new.options);

    INSERT INTO jobs__sweep (most, now)
    VALUES (coalesce(new.options ->> 'limit', 1000), (SELECT now FROM jobs_clock));
END;

-- The steps. What each did is left at a place of its own among the replies; those of the rescued attempts have the places
-- from 0.
DROP VIEW IF EXISTS jobs__sweep;
CREATE VIEW jobs__sweep (most, now) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__sweep_called INSTEAD OF INSERT ON jobs__sweep
BEGIN
    INSERT INTO jobs__attempt (job, outcome, detail, now)
    SELECT rowid, 'failed', '{"kind": "lost", "message": "the lease was over and its worker had not been heard of"}', new.now
      FROM jobs INDEXED BY jobs_held
     WHERE state = 'running'
       AND lease_until < new.now
     LIMIT new.most;

    INSERT INTO jobs__replies (position, id, answer)
    SELECT -2, 'rescued', count(*) FILTER (WHERE answer = 'scheduled') FROM jobs__replies WHERE position >= 0
     UNION ALL
    SELECT -3, 'buried', count(*) FILTER (WHERE answer <> 'scheduled') FROM jobs__replies WHERE position >= 0
     UNION ALL
    SELECT -4, 'promoted', count(*)
      FROM (SELECT 1 FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled' AND run_at <= new.now LIMIT new.most)
     UNION ALL
    SELECT -5, 'batches_finished', count(*)
      FROM (SELECT 1
              FROM jobs_batches INDEXED BY jobs_batches_sealed
             WHERE sealed_at IS NOT NULL
               AND finished_at IS NULL
               AND done = total
             LIMIT new.most);

    INSERT INTO jobs__promote (most, now)
    VALUES (new.most, new.now);

    INSERT INTO jobs__finish_batch (id, now)
    SELECT id, new.now
      FROM jobs_batches INDEXED BY jobs_batches_sealed
     WHERE sealed_at IS NOT NULL
       AND finished_at IS NULL
       AND done = total
     LIMIT new.most;

    DELETE FROM jobs_slots
     WHERE job_id IN (SELECT s.job_id
                        FROM jobs_slots AS s
                       WHERE NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = s.job_id AND j.token = s.token)
                       LIMIT new.most);
    INSERT INTO jobs__replies (position, id, answer) VALUES (-6, 'slots_freed', changes());

    -- Ended jobs that have been kept for as long as their definition says: of each state and name those that ended first,
    -- found by stepping over the index from name to name.
    DELETE FROM jobs
     WHERE rowid IN (
           SELECT job
             FROM (WITH RECURSIVE kind (state, name) AS (
                       SELECT '', ''
                        UNION ALL
                       SELECT first.state, first.name
                         FROM kind
                        CROSS JOIN jobs AS first
                           ON first.rowid = coalesce(
                              (SELECT rowid
                                 FROM jobs INDEXED BY jobs_ended
                                WHERE finished_at IS NOT NULL
                                  AND state = kind.state
                                  AND name > kind.name
                                ORDER BY name
                                LIMIT 1),
                              (SELECT rowid
                                 FROM jobs INDEXED BY jobs_ended
                                WHERE finished_at IS NOT NULL
                                  AND state > kind.state
                                ORDER BY state, name
                                LIMIT 1)))
                   SELECT j.rowid AS job
                     FROM kind
                     LEFT JOIN jobs_definitions AS d ON d.name = kind.name
                    CROSS JOIN jobs AS j INDEXED BY jobs_ended
                       ON j.state = kind.state
                      AND j.name = kind.name
                      AND j.finished_at <= new.now - CASE kind.state WHEN 'dead' THEN d.keep_dead_ms
                                                                     ELSE coalesce(d.keep_done_ms, 86400000) END)
            LIMIT new.most);
    INSERT INTO jobs__replies (position, id, answer) VALUES (-7, 'pruned', changes());

    -- A batch is kept for a day after it finished, and a worker for a day after it was last heard of.
    DELETE FROM jobs_batches
     WHERE rowid IN (SELECT rowid
                       FROM jobs_batches INDEXED BY jobs_batches_finished
                      WHERE finished_at <= new.now - 86400000
                      ORDER BY finished_at
                      LIMIT new.most);
    INSERT INTO jobs__replies (position, id, answer) VALUES (-8, 'pruned', changes());

    DELETE FROM jobs_workers
     WHERE rowid IN (SELECT rowid
                       FROM jobs_workers
                      WHERE live_until <= new.now - 86400000
                      LIMIT new.most);
    INSERT INTO jobs__replies (position, id, answer) VALUES (-9, 'pruned', changes());

    -- Keys kept for ever, once their jobs are gone and the setting says that it is over.
    DELETE FROM jobs_keys
     WHERE key IN (SELECT k.key
                     FROM jobs_keys AS k INDEXED BY jobs_keys_since
                    WHERE k.kept = 'ever'
                      AND k.since <= new.now - (SELECT CAST(nullif(value, 'null') AS INTEGER) FROM jobs_settings WHERE name = 'keep_keys_ms')
                      AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.id = k.job_id)
                    ORDER BY k.since
                    LIMIT new.most);
    INSERT INTO jobs__replies (position, id, answer) VALUES (-10, 'pruned', changes());
END;
