-- The clock, the contract's version, and the small readers that the routines share.
--
-- HOW ROUTINES ARE CALLED. SQLite has no procedures, so a routine is a view, and calling it is inserting into it: its
-- INSTEAD OF trigger is the routine. An argument that is left out is NULL, and JSON is passed as text:
--
--     INSERT INTO jobs_define (name, options) VALUES ('welcome', '{"max_attempts": 3}');
--     INSERT INTO jobs_enqueue (name, args, options) VALUES ('welcome', '{"user_id": 1}', '{"delay_ms": 5000}');
--     INSERT INTO jobs_claim (worker, token, options) VALUES ('shell', '6f9f5d0e-…', '{"max_jobs": 10}');
--     INSERT INTO jobs_settle (id, token, outcome, detail) VALUES ('0199…', '6f9f5d0e-…', 'failed', '{"message": "no"}');
--
-- HOW THEY ANSWER. Read the answer in the same transaction; the next routine replaces it.
--
--     jobs_enqueued   position (from 0), id, inserted         jobs_enqueue, jobs_enqueue_many
--     jobs_claimed    the rows held, by token                 jobs_claim
--     jobs_heard      id, signal                              jobs_heartbeat
--     jobs_settled    position (from 0), id, accepted, state  jobs_settle, jobs_settle_many
--     jobs_swept      promoted, rescued, buried, …            jobs_sweep
--     jobs_answered   value                                   the others that answer an id, a count or a slot
--
-- Batches are answered by jobs_batch_status, by their id. One statement can both call and read:
--
--     INSERT INTO jobs_enqueue (name) VALUES ('welcome') RETURNING (SELECT id FROM jobs_enqueued);
--     INSERT INTO jobs_claim (worker, token) VALUES ('shell', '6f9f5d0e-…')
--       RETURNING (SELECT json_group_array(json_object('id', id, 'args', args)) FROM jobs_claimed WHERE token = '6f9f5d0e-…');
--
-- WHY IT IS SAFE. A trigger is part of its statement: it happens whole or not at all, and a refusal (RAISE(ABORT, 'PJ…'))
-- undoes that statement and nothing else of the caller's transaction. SQLite has one writer at a time, from the first
-- row a routine touches until COMMIT, so two callers cannot interleave and no routine needs a lock of its own.
--
-- HOW THE FILES ARE WRITTEN. A trigger has no variables. Where a routine needs one, it inserts what it has computed into
-- a view of its own, `jobs__…`, whose trigger goes on with it as `new.…`. And since a view cannot be given arguments, the
-- three readers below are "called" by a condition on their first column, which is the hidden argument of json_each.
-- What RAISE says must be a literal: "PJ… what was wrong; what to do about it". Indexes are named where the planner could
-- choose another, so that a plan is the same with and without ANALYZE.

-- The only reader of the clock: one row, whole milliseconds since the epoch, stable within a statement.
DROP VIEW IF EXISTS jobs_clock;
CREATE VIEW jobs_clock (now) AS
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER);

DROP VIEW IF EXISTS jobs_contract;
CREATE VIEW jobs_contract (version) AS
SELECT 1;

DROP VIEW IF EXISTS jobs_answered;
CREATE VIEW jobs_answered (value) AS
SELECT answer
  FROM jobs__replies
 WHERE position = -1;

-- The moment that a JSON string holds as ISO 8601 with an offset, in ms; NULL for anything else. The second day and the last
-- but one bound what can be shown in any timezone.
DROP VIEW IF EXISTS jobs__moment;
CREATE VIEW jobs__moment (given, ms) AS
SELECT given,
       CASE WHEN ms BETWEEN -62135510400000 AND 253402128000000 - past_ms THEN ms END
  FROM (SELECT given,
               ltrim(substr(fraction, 5), '0') <> '' AS past_ms,
               CASE WHEN strftime('%Y-%m-%dT%H:%M:%S', local, '+0 days') = local  -- no 30 February, no hour 24
                     AND (fraction = ''
                          OR length(fraction) BETWEEN 2 AND 10 AND fraction GLOB '.*' AND substr(fraction, 2) NOT GLOB '*[^0-9]*')
                     AND (zone = 'Z' OR zone GLOB '[+-][01][0-9]:[0-5][0-9]' AND substr(zone, 2, 2) < '16')
                    THEN strftime('%s', local) * 1000
                         + CAST(substr(fraction || '0000', 2, 3) AS INTEGER)
                         - CASE WHEN zone = 'Z' THEN 0
                                ELSE (substr(zone, 1, 1) || '1') * (substr(zone, 2, 2) * 3600000 + substr(zone, 5, 2) * 60000) END
                    END AS ms
          FROM (SELECT given,
                       zone,
                       substr(clock, 1, 19) AS local,
                       substr(clock, 20) AS fraction
                  FROM (SELECT given,
                               zone,
                               CASE WHEN length(text) - length(zone) = 16 THEN substr(text, 1, 16) || ':00'
                                    ELSE substr(text, 1, length(text) - length(zone)) END AS clock
                          FROM (SELECT json AS given,
                                       value AS text,
                                       CASE WHEN value GLOB '*Z' THEN 'Z' ELSE substr(value, -6) END AS zone
                                  FROM json_each
                                 WHERE type = 'text' AND key IS NULL
                                   AND instr(json, '\u0000') = 0))));

-- The UUID that a JSON string holds, in lower case; NULL for anything else.
DROP VIEW IF EXISTS jobs__uuid;
CREATE VIEW jobs__uuid (given, id) AS
SELECT json,
       lower(value)
  FROM json_each
 WHERE type = 'text' AND key IS NULL
   AND value GLOB '????????-????-????-????-????????????'
   AND length(replace(value, '-', '')) = 32
   AND replace(value, '-', '') NOT GLOB '*[^0-9A-Fa-f]*';

-- The characters of a JSON string. What no text can hold becomes U+FFFD: SQLite would end the text at a NUL, and make of
-- half a surrogate pair what nobody can read again. GLOB reads such a half as U+FFFD already, so it tells where one may be;
-- a text that has any is halved until each piece is without or a single character, which costs the same for any length.
DROP VIEW IF EXISTS jobs__text;
CREATE VIEW jobs__text (given, text) AS
SELECT given,
       CASE WHEN text NOT GLOB '*' || char(65533) || '*' THEN text
            ELSE (WITH RECURSIVE piece (place, size, text) AS (
                      SELECT 1, length(text), text
                       UNION ALL
                      SELECT place + size / 2 * half,
                             CASE half WHEN 0 THEN size / 2 ELSE size - size / 2 END,
                             CASE half WHEN 0 THEN substr(text, 1, size / 2) ELSE substr(text, size / 2 + 1) END
                        FROM piece
                       CROSS JOIN (SELECT 0 AS half UNION ALL SELECT 1)
                       WHERE size > 1
                         AND text GLOB '*' || char(65533) || '*')
                  SELECT group_concat(text, '')
                    FROM (SELECT CASE size WHEN 1 THEN char(unicode(text)) ELSE text END AS text
                            FROM piece
                           WHERE size = 1
                              OR text NOT GLOB '*' || char(65533) || '*'
                           ORDER BY place)) END
  FROM (SELECT json AS given,
               CASE WHEN instr(json, '\u0000') = 0 THEN value
                    ELSE replace(replace(replace(json, '\\', char(1)), '\u0000', '\ufffd'), char(1), '\\') ->> '$' END AS text
          FROM json_each
         WHERE type = 'text' AND key IS NULL);

-- Refuses an object with a key that stands twice or is spelt with an escape. Of two the readers would each take another one,
-- and an escape they would not read, so that what was checked and what is done could differ.
DROP VIEW IF EXISTS jobs__check_keys;
CREATE VIEW jobs__check_keys (object) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs__check_keys_called INSTEAD OF INSERT ON jobs__check_keys
WHEN new.object <> '{}'
BEGIN
    SELECT RAISE(ABORT, 'PJ003 an option is given twice; give each once')
     WHERE (SELECT count(*) > count(DISTINCT key) FROM json_each(new.object));

    SELECT RAISE(ABORT, 'PJ003 the key of an option is spelt with an escape; write it as it is')
      FROM json_each(new.object)
     WHERE instr(new.object, '\u') > 0
       AND CASE WHEN key GLOB '[a-z]*' AND key NOT GLOB '*[^a-z_]*' THEN new.object -> key IS NULL END;
END;

-- Refuses options that are not a JSON object, or one that cannot be read.
DROP VIEW IF EXISTS jobs__check_object;
CREATE VIEW jobs__check_object (options) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs__check_object_called INSTEAD OF INSERT ON jobs__check_object
WHEN new.options <> '{}'
BEGIN
    SELECT CASE WHEN typeof(new.options) <> 'text' OR NOT json_valid(new.options)
                THEN RAISE(ABORT, 'PJ003 the options are not JSON; give an object')
                WHEN json_type(new.options) <> 'object'
                THEN RAISE(ABORT, 'PJ003 the options are not a JSON object; give an object') END;

    INSERT INTO jobs__check_keys (object)
    VALUES (new.options);

    SELECT RAISE(ABORT, 'PJ003 an option holds a character that cannot be kept; leave out \u0000 and half surrogate pairs')
      FROM json_each(new.options)
     WHERE instr(new.options, '\u') > 0
       AND type = 'text'
       AND key <> 'args'  -- which are refused as such
       AND CASE WHEN key GLOB '[a-z]*' AND key NOT GLOB '*[^a-z_]*'
                THEN value <> (SELECT text FROM jobs__text WHERE given = new.options -> key) END;
END;
