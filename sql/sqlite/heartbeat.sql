-- jobs_heartbeat: a worker says that it lives and what it still holds, and hears what needs its attention.
--
-- Only claims that are named, by id and token, are extended: one whose reply never arrived runs out and is rescued. A
-- lease that is over but not rescued yet is taken up again; one that was rescued is answered as `lost`, because the row no
-- longer has that token.
--
--     INSERT INTO jobs_heartbeat (worker, held, options)
--     VALUES ('shell', '[{"id": "0199…", "token": "6f9f5d0e-…"}]', '{"lease_ms": 60000}');
--     SELECT id, signal FROM jobs_heard;

DROP VIEW IF EXISTS jobs_heard;
CREATE VIEW jobs_heard (id, signal) AS
SELECT id, answer
  FROM jobs__replies
 WHERE position >= 0
 ORDER BY position;

DROP VIEW IF EXISTS jobs_heartbeat;
CREATE VIEW jobs_heartbeat (worker, held, options) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_heartbeat_called INSTEAD OF INSERT ON jobs_heartbeat
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN typeof(new.worker) <> 'text' OR length(new.worker) NOT BETWEEN 1 AND 190 OR instr(new.worker, char(0)) > 0
                THEN RAISE(ABORT, 'PJ010 the worker is empty, too long or not text; give 1 to 190 characters')
                WHEN typeof(coalesce(new.held, '[]')) <> 'text' OR NOT json_valid(coalesce(new.held, '[]'))
                THEN RAISE(ABORT, 'PJ003 held is not JSON; give an array of {id, token}')
                WHEN json_type(coalesce(new.held, '[]')) <> 'array'
                THEN RAISE(ABORT, 'PJ003 held is not an array; give an array of {id, token}') END;

    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE key
           WHEN 'lease_ms' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option lease_ms is not a whole number from 0; give milliseconds') END
           WHEN 'info' THEN CASE
                WHEN type NOT IN ('object', 'null')
                THEN RAISE(ABORT, 'PJ003 option info is not a JSON object; give host, pid, version, queues, names, concurrency') END
           WHEN 'leaving' THEN CASE
                WHEN type NOT IN ('true', 'false', 'null')
                THEN RAISE(ABORT, 'PJ003 option leaving is neither true nor false; give one of them') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option; options: lease_ms, info, leaving') END
      FROM json_each(new.options);

    SELECT CASE WHEN type <> 'object'
                  OR (SELECT id FROM jobs__uuid WHERE given = value -> 'id') IS NULL
                  OR (SELECT id FROM jobs__uuid WHERE given = value -> 'token') IS NULL
                THEN RAISE(ABORT, 'PJ003 held has an element without an id and a token; give {id, token}, both UUIDs') END
      FROM json_each(new.held);

    INSERT INTO jobs__check_keys (object)
    SELECT value
      FROM json_each(new.held);

    INSERT INTO jobs__heartbeat (worker, held, lease_ms, info, leaving, now)
    VALUES (new.worker,
            coalesce(new.held, '[]'),
            coalesce(new.options ->> 'lease_ms', 300000),
            nullif(new.options -> 'info', 'null'),
            coalesce(new.options ->> 'leaving', false),
            (SELECT now FROM jobs_clock));
END;

DROP VIEW IF EXISTS jobs__heartbeat;
CREATE VIEW jobs__heartbeat (worker, held, lease_ms, info, leaving, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__heartbeat_called INSTEAD OF INSERT ON jobs__heartbeat
BEGIN
    UPDATE jobs
       SET lease_until = new.now + new.lease_ms
     WHERE rowid IN (SELECT j.rowid
                       FROM json_each(new.held) AS each
                      CROSS JOIN jobs AS j
                         ON j.id = lower(each.value ->> 'id')
                        AND j.token = lower(each.value ->> 'token'));

    INSERT INTO jobs__replies (position, id, answer)
    SELECT each.key, lower(each.value ->> 'id'), CASE WHEN j.id IS NULL THEN 'lost' ELSE 'cancel' END
      FROM json_each(new.held) AS each
      LEFT JOIN jobs AS j
        ON j.id = lower(each.value ->> 'id')
       AND j.token = lower(each.value ->> 'token')
     WHERE j.id IS NULL
        OR j.cancel_at IS NOT NULL;

    DELETE FROM jobs_workers
     WHERE id = new.worker
       AND new.leaving;

    INSERT INTO jobs_workers (id, info, started_at, seen_at, live_until)
    SELECT new.worker, coalesce(new.info, '{}'), new.now, new.now, new.now + new.lease_ms
     WHERE NOT new.leaving
        ON CONFLICT (id) DO UPDATE
       SET info = coalesce(new.info, info),
           seen_at = excluded.seen_at,
           live_until = excluded.live_until;
END;
