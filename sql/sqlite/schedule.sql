-- jobs_put_schedule, jobs_prune_schedules, jobs_tick_schedule: jobs at moments that come round.
--
-- Any number of workers may tick one moment. The schedule must still stand at `expected`, and moves on in the statement
-- that enqueues its job: so one of them fires, and the others find it gone. The job has a key made of the schedule and the
-- moment that is kept while its row is there: a schedule put back to a moment that has fired does not fire it again.
--
-- When a moment comes is for the caller to say (cron is read by the driver); that it has come is for the clock here.
--
--     INSERT INTO jobs_put_schedule (name, options, next_run_at)
--     VALUES ('nightly', '{"job": "cleanup", "cron": "0 3 * * *"}', '2026-02-01T03:00:00Z');
--     INSERT INTO jobs_tick_schedule (name, expected, next) VALUES ('nightly', '2026-02-01T03:00:00Z', '2026-02-02T03:00:00Z')
--       RETURNING (SELECT value FROM jobs_answered);

DROP VIEW IF EXISTS jobs_put_schedule;
CREATE VIEW jobs_put_schedule (name, options, next_run_at) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_put_schedule_called INSTEAD OF INSERT ON jobs_put_schedule
BEGIN
    SELECT RAISE(ABORT, 'PJ010 the name is empty, too long or not text; give 1 to 190 characters')
     WHERE typeof(new.name) <> 'text' OR length(new.name) NOT BETWEEN 1 AND 190 OR instr(new.name, char(0)) > 0;

    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE key
           WHEN 'job' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option job is not text; give the name of a defined job') END
           WHEN 'cron' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option cron is not text; give a cron expression, as 0 3 * * *') END
           WHEN 'every_ms' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 1 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option every_ms is not a whole number from 1; give milliseconds') END
           WHEN 'timezone' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option timezone is not text; give a name such as Europe/Paris')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option timezone is empty or too long; give 1 to 190 characters') END
           WHEN 'source' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option source is not text; give 1 to 190 characters')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option source is empty or too long; give 1 to 190 characters') END
           WHEN 'enabled' THEN CASE
                WHEN type NOT IN ('true', 'false', 'null')
                THEN RAISE(ABORT, 'PJ003 option enabled is neither true nor false; give one of them') END
           WHEN 'options' THEN CASE
                WHEN type NOT IN ('object', 'null')
                THEN RAISE(ABORT, 'PJ003 option options is not a JSON object; give the options of an enqueue') END
           ELSE CASE
                WHEN key <> 'args'
                THEN RAISE(ABORT, 'PJ003 there is no such option; options: job, cron, every_ms, timezone, args, options, source, enabled') END
           END
      FROM json_each(new.options);

    SELECT CASE WHEN new.options ->> 'job' IS NULL
                THEN RAISE(ABORT, 'PJ003 option job is missing; give the name of a defined job')
                WHEN NOT EXISTS (SELECT 1 FROM jobs_definitions WHERE name = new.options ->> 'job')
                THEN RAISE(ABORT, 'PJ001 no job of that name is defined; see jobs_defined for the names that are')
                WHEN (new.options ->> 'cron' IS NULL) = (new.options ->> 'every_ms' IS NULL) OR trim(new.options ->> 'cron') = ''
                THEN RAISE(ABORT, 'PJ011 the schedule has no timing, or two; give either cron or every_ms')
                WHEN (SELECT ms FROM jobs__moment WHERE given = json_quote(CAST(new.next_run_at AS TEXT))) IS NULL
                THEN RAISE(ABORT, 'PJ011 next_run_at is not a moment; give ISO 8601 with an offset, as 2026-01-31T09:00:00Z') END;

    INSERT INTO jobs__put_schedule (name, job, cron, every_ms, timezone, args, options, source, enabled, next_run_at)
    VALUES (new.name,
            new.options ->> 'job',
            new.options ->> 'cron',
            new.options ->> 'every_ms',
            coalesce(new.options ->> 'timezone', 'UTC'),
            CASE json_type(new.options, '$.args') WHEN 'text' THEN new.options ->> 'args'
                                                  WHEN 'null' THEN '{}'
                                                  ELSE coalesce(new.options -> 'args', '{}') END,
            coalesce(nullif(new.options -> 'options', 'null'), '{}'),
            new.options ->> 'source',
            new.options ->> 'enabled',
            (SELECT ms FROM jobs__moment WHERE given = json_quote(CAST(new.next_run_at AS TEXT))));
END;

-- Writes a schedule that has been checked, but for what its job carries. What stands there already is not written again.
DROP VIEW IF EXISTS jobs__put_schedule;
CREATE VIEW jobs__put_schedule (name, job, cron, every_ms, timezone, args, options, source, enabled, next_run_at) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__put_schedule_called INSTEAD OF INSERT ON jobs__put_schedule
BEGIN
    INSERT INTO jobs__check_args (args)
    VALUES (new.args);

    INSERT INTO jobs__check_options (options, taker)
    VALUES (new.options, 'schedule');

    INSERT INTO jobs_schedules (name, job, cron, every_ms, timezone, args, options, source, enabled, next_run_at)
    VALUES (new.name, new.job, new.cron, new.every_ms, new.timezone, new.args, new.options, new.source,
            coalesce(new.enabled, true), new.next_run_at)
        ON CONFLICT (name) DO UPDATE
       SET job = new.job,
           cron = new.cron,
           every_ms = new.every_ms,
           timezone = new.timezone,
           args = new.args,
           options = new.options,
           source = new.source,
           enabled = coalesce(new.enabled, enabled),
           next_run_at = CASE WHEN (cron, every_ms, timezone) IS (new.cron, new.every_ms, new.timezone)
                              THEN next_run_at
                              ELSE new.next_run_at END
     WHERE (job, cron, every_ms, timezone, args, options, source, enabled)
           IS NOT
           (new.job, new.cron, new.every_ms, new.timezone, new.args, new.options, new.source, coalesce(new.enabled, enabled));
END;

-- `names` is a JSON array of those that the source still declares.
DROP VIEW IF EXISTS jobs_prune_schedules;
CREATE VIEW jobs_prune_schedules (source, names) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs_prune_schedules_called INSTEAD OF INSERT ON jobs_prune_schedules
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN typeof(new.names) <> 'text' OR NOT json_valid(new.names)
                THEN RAISE(ABORT, 'PJ003 names is not JSON; give an array of texts')
                WHEN json_type(new.names) <> 'array'
                  OR EXISTS (SELECT 1 FROM json_each(new.names) WHERE type <> 'text')
                THEN RAISE(ABORT, 'PJ003 names is not an array of texts; give the names that are still declared') END;

    DELETE FROM jobs_schedules
     WHERE source = new.source
       AND name NOT IN (SELECT value FROM json_each(new.names));

    INSERT INTO jobs__replies (position, answer) VALUES (-1, changes());
END;

DROP VIEW IF EXISTS jobs_tick_schedule;
CREATE VIEW jobs_tick_schedule (name, expected, next) AS
SELECT NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_tick_schedule_called INSTEAD OF INSERT ON jobs_tick_schedule
BEGIN
    DELETE FROM jobs__replies;

    INSERT INTO jobs__tick_schedule (name, expected, next, id, now)
    VALUES (new.name,
            (SELECT ms FROM jobs__moment WHERE given = json_quote(CAST(new.expected AS TEXT))),
            (SELECT ms FROM jobs__moment WHERE given = json_quote(CAST(new.next AS TEXT))),
            (SELECT id FROM jobs__new_id),
            (SELECT now FROM jobs_clock));

    INSERT INTO jobs__replies (position, answer)
    VALUES (-1, (SELECT id FROM jobs__replies WHERE position = 0 AND accepted));
END;

DROP VIEW IF EXISTS jobs__tick_schedule;
CREATE VIEW jobs__tick_schedule (name, expected, next, id, now) AS
SELECT NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__tick_schedule_called INSTEAD OF INSERT ON jobs__tick_schedule
WHEN EXISTS (SELECT 1
               FROM jobs_schedules
              WHERE name = new.name
                AND next_run_at = new.expected
                AND next_run_at <= new.now
                AND enabled)
BEGIN
    SELECT CASE WHEN new.next IS NULL OR new.next <= new.now
                THEN RAISE(ABORT, 'PJ011 the next moment of the schedule is not after now; give the first one that is, so that missed ones do not pile up')
                WHEN NOT EXISTS (SELECT 1 FROM jobs_schedules AS s JOIN jobs_definitions AS d ON d.name = s.job WHERE s.name = new.name)
                THEN RAISE(ABORT, 'PJ001 the job of the schedule is no longer defined; define it, or prune the schedule') END;

    INSERT INTO jobs__offer
           (position, id, name, queue, priority, max_attempts, timeout_ms, run_at,
            unique_key, unique_for, tenant, batch_id, args, meta, now)
    SELECT 0,
           new.id,
           s.job,
           coalesce(s.options ->> 'queue', d.queue),
           coalesce(s.options ->> 'priority', d.priority),
           coalesce(s.options ->> 'max_attempts', d.max_attempts),
           coalesce(s.options ->> 'timeout_ms', d.timeout_ms),
           new.now,
           'schedule:' || s.name || ':' || strftime('%Y-%m-%dT%H:%M:%fZ', new.expected / 1000.0, 'unixepoch'),
           'row',
           s.options ->> 'tenant',
           NULL,
           s.args,
           nullif(s.options -> 'meta', 'null'),
           new.now
      FROM jobs_schedules AS s
      JOIN jobs_definitions AS d ON d.name = s.job
     WHERE s.name = new.name;

    UPDATE jobs_schedules
       SET next_run_at = new.next,
           last_run_at = new.expected,
           last_job_id = coalesce((SELECT id FROM jobs__replies WHERE position = 0 AND accepted), last_job_id)
     WHERE name = new.name;
END;
