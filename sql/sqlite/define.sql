-- jobs_define: says what a job name stands for. jobs_forget: takes that back.
--
-- A definition is written whole: an option that is left out has its default again. One group has one limit because
-- `jobs_groups` holds it once, and a definition that would change it for others is refused (PJ008). The waiting jobs of
-- the name move to their new buckets in the same statement, so a limit bounds the backlog from the moment it holds; those
-- in hand keep their slots, and find their new bucket when they come back (jobs__attempt) or when a claim meets them.
--
-- A forgotten name leaves its group behind, and its waiting jobs bounded by it.

-- The characters of the JSON scalar at a dotted path of object keys; NULL when there is none.
-- Of keys that stand twice the last one counts. A number is taken as it is written, which only a path can do. A path finds
-- the first of equal keys, so the earlier ones are removed, if they are few: each removal reads all there is. And it
-- cannot spell an empty key, or one with a quotation mark in it. Elsewhere a number is taken as SQLite prints it.
DROP VIEW IF EXISTS jobs__value_at;
CREATE VIEW jobs__value_at (args, path, value) AS
SELECT a.json,
       p.json,
       (WITH RECURSIVE walk (holder, place, type, value, rest) AS (
            SELECT NULL, NULL, 'object', a.json, p.value || '.'
             UNION ALL
            SELECT walk.value,
                   (SELECT fullkey FROM json_each(walk.value) WHERE key = substr(rest, 1, instr(rest, '.') - 1) ORDER BY id DESC LIMIT 1),
                   (SELECT type FROM json_each(walk.value) WHERE key = substr(rest, 1, instr(rest, '.') - 1) ORDER BY id DESC LIMIT 1),
                   (SELECT value FROM json_each(walk.value) WHERE key = substr(rest, 1, instr(rest, '.') - 1) ORDER BY id DESC LIMIT 1),
                   substr(rest, instr(rest, '.') + 1)
              FROM walk
             WHERE rest <> ''
               AND type = 'object')
        SELECT CASE WHEN type IN ('true', 'false') THEN type
                    WHEN type = 'text' THEN (SELECT text FROM jobs__text WHERE given = json_quote(value))
                    WHEN type NOT IN ('integer', 'real') THEN NULL
                    WHEN place LIKE '%\"%' OR place LIKE '%.""' THEN value
                    WHEN (SELECT count(*) FROM json_each(holder) WHERE fullkey = place) > 9 THEN value
                    ELSE (WITH RECURSIVE single (node) AS (
                              SELECT holder
                               UNION ALL
                              SELECT json_remove(node, place)
                                FROM single
                               WHERE (SELECT count(*) FROM json_each(node) WHERE fullkey = place) > 1)
                          SELECT node -> place
                            FROM single
                           ORDER BY length(node)
                           LIMIT 1) END
          FROM walk
         WHERE rest = ''
           AND type IS NOT NULL)
  FROM json_each AS p
 CROSS JOIN json_each AS a
 WHERE p.key IS NULL;

-- The bucket each job belongs in: by its definition, or the one it has when the name is not defined.
DROP VIEW IF EXISTS jobs__bucket_of;
CREATE VIEW jobs__bucket_of (job, bucket) AS
SELECT j.rowid,
       CASE WHEN d.name IS NULL THEN j.bucket
            WHEN d.concurrency_key IS NULL THEN d.concurrency_group
            ELSE substr(d.concurrency_group || ':' || coalesce((SELECT value
                                                                  FROM jobs__value_at
                                                                 WHERE args = j.args
                                                                   AND path = json_quote(d.concurrency_key)
                                                                 LIMIT 1), 'null'), 1, 380) END
  FROM jobs AS j
  LEFT JOIN jobs_definitions AS d ON d.name = j.name;

-- Every job that waits. Each part reads one index.
DROP VIEW IF EXISTS jobs__waiting;
CREATE VIEW jobs__waiting (job, name) AS
SELECT rowid, name FROM jobs INDEXED BY jobs_lanes WHERE state = 'pending' AND bucket IS NULL
 UNION ALL
SELECT rowid, name FROM jobs INDEXED BY jobs_limited WHERE state = 'pending' AND bucket IS NOT NULL
 UNION ALL
SELECT rowid, name FROM jobs INDEXED BY jobs_due WHERE state = 'scheduled';

-- Refuses the options of a definition, an enqueue, a batch's callback or a schedule's job (the taker) that are unknown to
-- it or have a bad value. An option that is null counts as left out.
DROP VIEW IF EXISTS jobs__check_options;
CREATE VIEW jobs__check_options (options, taker) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__check_options_called INSTEAD OF INSERT ON jobs__check_options
BEGIN
    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE new.taker
           WHEN 'enqueue' THEN CASE
                WHEN key NOT IN ('queue', 'priority', 'max_attempts', 'timeout_ms', 'run_at', 'delay_ms', 'unique_key', 'unique_for', 'tenant', 'batch_id', 'meta')
                THEN RAISE(ABORT, 'PJ003 there is no such option; options: queue, priority, max_attempts, timeout_ms, run_at, delay_ms, unique_key, unique_for, tenant, batch_id, meta') END
           WHEN 'definition' THEN CASE
                WHEN key NOT IN ('queue', 'priority', 'max_attempts', 'timeout_ms', 'backoff', 'concurrency', 'keep_done_ms', 'keep_dead_ms')
                THEN RAISE(ABORT, 'PJ003 there is no such option; options: queue, priority, max_attempts, timeout_ms, backoff, concurrency, keep_done_ms, keep_dead_ms') END
           WHEN 'callback' THEN CASE
                WHEN key NOT IN ('queue', 'priority', 'max_attempts', 'timeout_ms', 'run_at', 'delay_ms', 'tenant', 'meta')
                THEN RAISE(ABORT, 'PJ003 there is no such option in callback.options; options: queue, priority, max_attempts, timeout_ms, run_at, delay_ms, tenant, meta') END
           WHEN 'schedule' THEN CASE
                WHEN key NOT IN ('queue', 'priority', 'max_attempts', 'timeout_ms', 'tenant', 'meta')
                THEN RAISE(ABORT, 'PJ003 there is no such option in options; options: queue, priority, max_attempts, timeout_ms, tenant, meta') END
           END
      FROM json_each(new.options);

    SELECT CASE key
           WHEN 'queue' THEN CASE
                WHEN type <> 'text'
                THEN RAISE(ABORT, 'PJ003 option queue is not text; give 1 to 190 characters')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option queue is empty or too long; give 1 to 190 characters') END
           WHEN 'priority' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN -32768 AND 32767
                THEN RAISE(ABORT, 'PJ003 option priority is not a whole number from -32768 to 32767; lower goes first') END
           WHEN 'max_attempts' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 1 AND 2147483647
                THEN RAISE(ABORT, 'PJ003 option max_attempts is not a whole number from 1; 1 is to try once') END
           WHEN 'timeout_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 1 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option timeout_ms is not a whole number from 1; give milliseconds') END
           WHEN 'run_at' THEN CASE
                WHEN type <> 'text' OR (SELECT ms FROM jobs__moment WHERE given = new.options -> 'run_at') IS NULL
                THEN RAISE(ABORT, 'PJ003 option run_at is not a moment; give ISO 8601 with an offset, as 2026-01-31T09:00:00Z') END
           WHEN 'delay_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option delay_ms is not a whole number from 0; give milliseconds')
                WHEN new.options ->> 'run_at' IS NOT NULL
                THEN RAISE(ABORT, 'PJ003 option delay_ms is given together with run_at; give one of them') END
           WHEN 'unique_key' THEN CASE
                WHEN type <> 'text'
                THEN RAISE(ABORT, 'PJ003 option unique_key is not text; give 1 to 190 characters')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option unique_key is empty or too long; give 1 to 190 characters')
                WHEN value GLOB 'schedule:*' OR value GLOB 'batch:*'
                THEN RAISE(ABORT, 'PJ003 option unique_key begins with schedule: or batch:; keys that begin so are the queue''s own: begin it otherwise') END
           WHEN 'unique_for' THEN CASE
                WHEN value NOT IN ('active', 'row', 'ever')
                THEN RAISE(ABORT, 'PJ003 option unique_for is not one it takes; give active, row or ever')
                WHEN new.options ->> 'unique_key' IS NULL
                THEN RAISE(ABORT, 'PJ003 option unique_for is given without a key; give unique_key with it') END
           WHEN 'tenant' THEN CASE
                WHEN type <> 'text'
                THEN RAISE(ABORT, 'PJ003 option tenant is not text; give 1 to 190 characters, or null')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option tenant is empty or too long; give 1 to 190 characters, or null') END
           WHEN 'batch_id' THEN CASE
                WHEN (SELECT id FROM jobs__uuid WHERE given = new.options -> 'batch_id') IS NULL
                THEN RAISE(ABORT, 'PJ003 option batch_id is not a UUID; give the id that jobs_open_batch answered') END
           WHEN 'meta' THEN CASE
                WHEN type <> 'object' OR length(CAST(value AS BLOB)) > 16384
                THEN RAISE(ABORT, 'PJ003 option meta is not a small JSON object; give an object of at most 16384 bytes') END
           WHEN 'keep_done_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option keep_done_ms is not a whole number from 0; give milliseconds') END
           WHEN 'keep_dead_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option keep_dead_ms is not a whole number from 0; give milliseconds, or null to keep them') END
           WHEN 'backoff' THEN CASE
                WHEN type <> 'object'
                THEN RAISE(ABORT, 'PJ003 option backoff is not a JSON object; give base_ms, factor, max_ms, jitter') END
           WHEN 'concurrency' THEN CASE
                WHEN type <> 'object'
                THEN RAISE(ABORT, 'PJ003 option concurrency is not a JSON object; give limit, group, key') END
           END
      FROM json_each(new.options)
     WHERE type <> 'null';
END;

DROP VIEW IF EXISTS jobs_define;
CREATE VIEW jobs_define (name, options) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs_define_called INSTEAD OF INSERT ON jobs_define
BEGIN
    SELECT RAISE(ABORT, 'PJ010 the name is empty, too long or not text; give 1 to 190 characters')
     WHERE typeof(new.name) <> 'text' OR length(new.name) NOT BETWEEN 1 AND 190 OR instr(new.name, char(0)) > 0;

    INSERT INTO jobs__check_options (options, taker)
    VALUES (coalesce(new.options, '{}'), 'definition');

    INSERT INTO jobs__check_object (options)
    SELECT value
      FROM json_each(new.options)
     WHERE key IN ('backoff', 'concurrency')
       AND type = 'object';

    SELECT CASE key
           WHEN 'base_ms' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option backoff.base_ms is not a whole number from 0; give milliseconds') END
           WHEN 'factor' THEN CASE
                WHEN type NOT IN ('integer', 'real', 'null') OR value NOT BETWEEN 1 AND 1000000
                THEN RAISE(ABORT, 'PJ003 option backoff.factor is not a number from 1; each wait is that many times the last') END
           WHEN 'max_ms' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option backoff.max_ms is not a whole number from 0; give milliseconds') END
           WHEN 'jitter' THEN CASE
                WHEN type NOT IN ('integer', 'real', 'null') OR value NOT BETWEEN 0 AND 1
                THEN RAISE(ABORT, 'PJ003 option backoff.jitter is not a number from 0 to 1; 0.15 is 15 % more or less') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option in backoff; options: base_ms, factor, max_ms, jitter') END
      FROM json_each(new.options, '$.backoff')
     WHERE key IS NOT NULL;

    SELECT CASE key
           WHEN 'limit' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 1 AND 1000000
                THEN RAISE(ABORT, 'PJ003 option concurrency.limit is not a whole number from 1 to 1000000; it is how many run at once') END
           WHEN 'group' THEN CASE
                WHEN type NOT IN ('text', 'null') OR instr(value, ':') > 0
                THEN RAISE(ABORT, 'PJ003 option concurrency.group is not text without a colon; give 1 to 190 characters')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option concurrency.group is empty or too long; give 1 to 190 characters') END
           WHEN 'key' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option concurrency.key is not text; give a dotted path into args, as account.id')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option concurrency.key is empty or too long; give 1 to 190 characters') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option in concurrency; options: limit, group, key') END
      FROM json_each(new.options, '$.concurrency')
     WHERE key IS NOT NULL;

    SELECT CASE WHEN new.options ->> '$.concurrency.limit' IS NULL
                THEN RAISE(ABORT, 'PJ003 option concurrency.limit is missing; give how many run at once')
                WHEN instr(coalesce(new.options ->> '$.concurrency.group', new.name), ':') > 0
                THEN RAISE(ABORT, 'PJ003 option concurrency.group is missing, and the name has a colon; give a group without one') END
     WHERE json_type(new.options, '$.concurrency') = 'object';

    INSERT INTO jobs__define
           (name, queue, priority, max_attempts, timeout_ms, base_ms, factor, max_ms, jitter,
            "group", "limit", key, keep_done_ms, keep_dead_ms, moved)
    SELECT new.name,
           coalesce(new.options ->> 'queue', 'default'),
           coalesce(new.options ->> 'priority', 0),
           coalesce(new.options ->> 'max_attempts', 5),
           new.options ->> 'timeout_ms',
           coalesce(new.options ->> '$.backoff.base_ms', 5000),
           coalesce(new.options ->> '$.backoff.factor', 4),
           coalesce(new.options ->> '$.backoff.max_ms', 3600000),
           coalesce(new.options ->> '$.backoff.jitter', 0.15),
           c."group",
           new.options ->> '$.concurrency.limit',
           c.key,
           coalesce(new.options ->> 'keep_done_ms', 86400000),
           new.options ->> 'keep_dead_ms',
           d.concurrency_group IS NOT c."group" OR d.concurrency_key IS NOT c.key OR d.name IS NULL
      FROM (SELECT CASE WHEN json_type(new.options, '$.concurrency') = 'object'
                        THEN coalesce(new.options ->> '$.concurrency.group', new.name) END AS "group",
                   new.options ->> '$.concurrency.key' AS key) AS c
      LEFT JOIN jobs_definitions AS d ON d.name = new.name;
END;

-- Writes what has been checked. What stands there already is not written again, so the start of many workers, each of
-- which defines all it knows, is cheap; the backlog is read only if the group or key has `moved`.
DROP VIEW IF EXISTS jobs__define;
CREATE VIEW jobs__define
       (name, queue, priority, max_attempts, timeout_ms, base_ms, factor, max_ms, jitter,
        "group", "limit", key, keep_done_ms, keep_dead_ms, moved) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__define_called INSTEAD OF INSERT ON jobs__define
BEGIN
    SELECT RAISE(ABORT, 'PJ008 another definition of this concurrency group has another limit; give both the same, or this one a group of its own')
      FROM jobs_definitions
     WHERE concurrency_group = new."group"
       AND concurrency_limit <> new."limit"
       AND name <> new.name;

    INSERT INTO jobs_groups (name, slots)
    SELECT new."group", new."limit"
     WHERE new."group" IS NOT NULL
        ON CONFLICT (name) DO UPDATE SET slots = excluded.slots WHERE slots <> excluded.slots;

    INSERT INTO jobs_definitions
           (name, queue, priority, max_attempts, timeout_ms,
            backoff_base_ms, backoff_factor, backoff_max_ms, backoff_jitter,
            concurrency_group, concurrency_limit, concurrency_key, keep_done_ms, keep_dead_ms)
    VALUES (new.name, new.queue, new.priority, new.max_attempts, new.timeout_ms,
            new.base_ms, new.factor, new.max_ms, new.jitter,
            new."group", new."limit", new.key, new.keep_done_ms, new.keep_dead_ms)
        ON CONFLICT (name) DO UPDATE
       SET queue = excluded.queue,
           priority = excluded.priority,
           max_attempts = excluded.max_attempts,
           timeout_ms = excluded.timeout_ms,
           backoff_base_ms = excluded.backoff_base_ms,
           backoff_factor = excluded.backoff_factor,
           backoff_max_ms = excluded.backoff_max_ms,
           backoff_jitter = excluded.backoff_jitter,
           concurrency_group = excluded.concurrency_group,
           concurrency_limit = excluded.concurrency_limit,
           concurrency_key = excluded.concurrency_key,
           keep_done_ms = excluded.keep_done_ms,
           keep_dead_ms = excluded.keep_dead_ms
     WHERE (queue, priority, max_attempts, timeout_ms,
            backoff_base_ms, backoff_factor, backoff_max_ms, backoff_jitter,
            concurrency_group, concurrency_limit, concurrency_key, keep_done_ms, keep_dead_ms)
           IS NOT
           (excluded.queue, excluded.priority, excluded.max_attempts, excluded.timeout_ms,
            excluded.backoff_base_ms, excluded.backoff_factor, excluded.backoff_max_ms, excluded.backoff_jitter,
            excluded.concurrency_group, excluded.concurrency_limit, excluded.concurrency_key,
            excluded.keep_done_ms, excluded.keep_dead_ms);

    UPDATE jobs
       SET bucket = (SELECT bucket FROM jobs__bucket_of WHERE job = jobs.rowid)
     WHERE new.moved
       AND rowid IN (SELECT job FROM jobs__waiting WHERE name = new.name);
END;

DROP VIEW IF EXISTS jobs_forget;
CREATE VIEW jobs_forget (name) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_forget_called INSTEAD OF INSERT ON jobs_forget
BEGIN
    DELETE FROM jobs__replies;
    DELETE FROM jobs_definitions WHERE name = new.name;
    INSERT INTO jobs__replies (position, answer) VALUES (-1, changes());
END;
