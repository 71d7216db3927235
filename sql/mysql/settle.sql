-- jobs_settle, jobs_settle_many: what attempts came to.
--
-- Only the holder of the current token changes anything: rows are locked by their ids, in order, and asked for the token under the
-- lock. So of a holder and whoever took the job from it, one settles. With the row go, in the same transaction, its slot,
-- its unique key, its place in a batch and, if it was the last there, the batch's callback.
--
-- A repeat is known by what the row keeps of the last outcome, and a failure by its line in jobs_failures as well.
--
-- The usual call, where everything is done, is a look under the lock and one UPDATE, and what the look found to be done besides. Any other
-- goes the whole way, step by step over all its jobs at once. A key that a producer's open transaction has locked is not waited for: it is let
-- go in jobs__loose_keys.
--
-- (LIMIT 1000000 keeps a derived table to itself. MariaDB would merge it, forget its STRAIGHT_JOIN, and lock all jobs on its way to one. And
-- such a table is given a key, which a JSON_TABLE is not: two of these joined with one another read the second once for each row of the first.)

DELIMITER //

-- Text for people to read: what no text can keep shows as a replacement character.
DROP PROCEDURE IF EXISTS jobs__prose//
CREATE PROCEDURE jobs__prose(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE unkept BOOLEAN;
    CALL jobs__json(members, member, value);
    CALL jobs__is_unkept(value, unkept);
    IF NOT unkept THEN
        CALL jobs__text(members, member, place, result);
    ELSE
        SET value = REPLACE(value, '\\\\', CHAR(1 USING utf8mb4));
        SET value = REGEXP_REPLACE(
            value, '\\\\u0000|\\\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F]{2})\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '�');
        SET result = JSON_UNQUOTE(REPLACE(value, CHAR(1 USING utf8mb4), '\\\\'));
    END IF;
END//

-- One outcome as it is handed on: an object with all that its detail says, which has a `kind`, as one that is done has not.
DROP PROCEDURE IF EXISTS jobs__read_outcome//
CREATE PROCEDURE jobs__read_outcome(id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, outcome LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, detail LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE members, known, kind, type, message, stack LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE permanent BOOLEAN;
    DECLARE wait_ms BIGINT;

    SET known = CASE outcome
                    WHEN 'done' THEN ''
                    WHEN 'released' THEN ''
                    WHEN 'cancelled' THEN 'message'
                    WHEN 'snoozed' THEN 'delay_ms'
                    WHEN 'failed' THEN 'type, message, stack, kind, permanent, retry_in_ms'
                END;
    IF known IS NULL THEN
        CALL jobs__refuse('PJ003', CONCAT(place, 'outcome is ', COALESCE(JSON_QUOTE(LEFT(outcome, 40)), 'missing')),
                          'it can be "done", "failed", "released", "snoozed" or "cancelled"');
    END IF;
    CALL jobs__members(detail, CONCAT(place, 'detail'), known, members);
    IF members <> '{}' THEN
        SET place = CONCAT(place, 'detail.');
        CALL jobs__text(members, 'kind', place, kind);
        CALL jobs__boolean(members, 'permanent', place, permanent);
        CALL jobs__duration(members, CASE outcome WHEN 'snoozed' THEN 'delay_ms' ELSE 'retry_in_ms' END, place, 0, wait_ms);
        CALL jobs__prose(members, 'type', place, type);
        CALL jobs__prose(members, 'message', place, message);
        CALL jobs__prose(members, 'stack', place, stack);
        IF kind NOT IN ('error', 'timeout', 'invalid_args', 'unknown_name', 'lost') THEN
            CALL jobs__refuse('PJ003', CONCAT(place, 'kind is ', JSON_QUOTE(LEFT(kind, 40))),
                              'it can be "error", "timeout", "invalid_args", "unknown_name" or "lost"');
        END IF;
    END IF;
    IF outcome = 'snoozed' AND wait_ms IS NULL THEN
        CALL jobs__refuse('PJ003', CONCAT(place, 'detail.delay_ms is missing'), 'say for how long, such as {"delay_ms": 60000}');
    END IF;
    IF outcome = 'done' THEN
        SET said = JSON_OBJECT('id', id, 'token', token, 'outcome', outcome);
    ELSE
        SET said = JSON_OBJECT('id', id, 'token', token, 'outcome', outcome, 'kind', COALESCE(kind, 'error'), 'permanent', COALESCE(permanent, FALSE),
                               'wait_ms', wait_ms, 'type', type, 'message', message, 'stack', stack);
    END IF;
END//

-- The outcomes of a document as they are handed on. Of those that are written as drivers do, done ones need no closer look. The others are read
-- some at a time: each that is taken off a long text moves the rest of it.
DROP PROCEDURE IF EXISTS jobs__read_outcomes//
CREATE PROCEDURE jobs__read_outcomes(outcomes LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE pieces, some LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE number INT DEFAULT 0;
    DECLARE valid BOOLEAN;
    DECLARE plain VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT CONCAT(
        '\\{"id": ?"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", ?"token": ?"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", ',
        '?"outcome": ?"done"\\}');

    IF outcomes REGEXP CONCAT('^\\[(?:', plain, '(?:, ?)?)*+\\]\\z') AND JSON_VALID(outcomes) THEN
        SET said = LOWER(outcomes);
    ELSE
        CALL jobs__is_json(outcomes, valid);
        IF NOT valid OR outcomes NOT REGEXP '^[ \\t\\n\\r]*+\\[' THEN
            CALL jobs__refuse('PJ003', 'outcomes is not a JSON array', 'pass an array of {"id", "token", "outcome", "detail"}');
        END IF;
        SET said = '';
        CALL jobs__split(outcomes, pieces);
        WHILE pieces <> '' DO
            SET some = SUBSTRING_INDEX(pieces, CHAR(1 USING utf8mb4), 20);
            SET pieces = SUBSTRING(pieces, CHAR_LENGTH(some) + 2);
            IF some REGEXP CONCAT('^(?:', plain, '(?:\\x01 ?)?)*+\\z') THEN
                SET number = number + 1 + LENGTH(some) - LENGTH(REPLACE(some, CHAR(1 USING utf8mb4), ''));
                SET some = LOWER(REPLACE(some, CHAR(1 USING utf8mb4), ','));
            ELSE
                CALL jobs__read_some_outcomes(some, number);
            END IF;
            SET said = CONCAT(said, ',', some);
        END WHILE;
        SET said = CONCAT('[', SUBSTRING(said, 2), ']');
    END IF;
END//

-- Outcomes one by one, of which `number` came before: `some` are their pieces, and become what is handed on.
DROP PROCEDURE IF EXISTS jobs__read_some_outcomes//
CREATE PROCEDURE jobs__read_some_outcomes(INOUT some LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, INOUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE piece, members, outcome, detail LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';
    DECLARE id, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE place VARCHAR(40) CHARACTER SET utf8mb4;
    WHILE some <> '' DO
        SET place = CONCAT('outcomes[', number, ']'), number = number + 1;
        CALL jobs__next_piece(some, piece);
        CALL jobs__members(piece, place, 'id, token, outcome, detail', members);
        SET place = CONCAT(place, '.');
        CALL jobs__uuid(members, 'id', place, id);
        CALL jobs__uuid(members, 'token', place, token);
        CALL jobs__text(members, 'outcome', place, outcome);
        CALL jobs__object(members, 'detail', place, detail);
        IF id IS NULL OR token IS NULL THEN
            CALL jobs__refuse('PJ003', CONCAT('outcomes[', number - 1, '] lacks its id or token'), 'name each attempt as {"id", "token", "outcome"}');
        END IF;
        CALL jobs__read_outcome(id, token, outcome, detail, place, piece);
        SET said = CONCAT(said, ',', piece);
    END WHILE;
    SET some = SUBSTRING(said, 2);
END//

-- Let the keys go that are kept for these jobs: of ended ones those of active jobs, of removed ones all that are not kept for ever.
DROP PROCEDURE IF EXISTS jobs__free_keys//
CREATE PROCEDURE jobs__free_keys(ids LONGTEXT CHARACTER SET ascii, removed BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE kept, free LONGTEXT CHARACTER SET ascii;
    DECLARE number, number_free INT;
    SELECT JSON_ARRAYAGG(HEX(k.key)), COUNT(*) INTO kept, number
      FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs_keys k FORCE INDEX (jobs_keys_job) ON k.job_id = p.id
     WHERE k.kept = 'active'
        OR removed AND k.kept = 'row';
    IF number > 0 THEN
        SELECT JSON_ARRAYAGG(HEX(f.key)), COUNT(*) INTO free, number_free
          FROM (SELECT STRAIGHT_JOIN k.key
                  FROM (SELECT UNHEX(t.code) AS code FROM JSON_TABLE(kept, '$[*]' COLUMNS (code VARCHAR(2048) CHARACTER SET ascii PATH '$')) AS t ORDER BY code LIMIT 1000000) AS p
                  JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = p.code
                 LIMIT 1000000
                   FOR UPDATE SKIP LOCKED) AS f;
        IF number_free < number THEN
            INSERT INTO jobs__loose_keys (`key`, job_id)
            SELECT k.key, k.job_id
              FROM JSON_TABLE(kept, '$[*]' COLUMNS (code VARCHAR(2048) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = UNHEX(p.code)
             WHERE LOCATE(CONCAT('"', p.code, '"'), COALESCE(free, '')) = 0
                ON DUPLICATE KEY UPDATE job_id = VALUES(job_id);
        END IF;
        DELETE k
          FROM JSON_TABLE(free, '$[*]' COLUMNS (code VARCHAR(2048) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs_keys k FORCE INDEX (PRIMARY) ON k.key = UNHEX(p.code);
    END IF;
END//

-- Delete rows, their failures, and let the keys go that were kept for them.
DROP PROCEDURE IF EXISTS jobs__remove//
CREATE PROCEDURE jobs__remove(ids LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DELETE j
      FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id;
    DELETE f
      FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
           STRAIGHT_JOIN jobs_failures f FORCE INDEX (jobs_failures_attempt) ON f.job_id = p.id;
    CALL jobs__free_keys(ids, TRUE);
END//

-- What is to become of the attempts that are held by the token they name; their rows are locked. Of several outcomes of one attempt the first
-- counts. How long the next attempt waits is base × factor^(attempt − 1), capped, times 1 ± jitter; the power is compared by
-- its logarithm first, since after some hundred attempts it is no number any more.
DROP PROCEDURE IF EXISTS jobs__judge//
CREATE PROCEDURE jobs__judge(said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6), OUT verdicts LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    SELECT JSON_ARRAYAGG(JSON_OBJECT(
               'n', v.n, 'id', v.id, 'token', v.token, 'outcome', v.outcome, 'state', v.state, 'batch_id', v.batch_id,
               'ended', v.state IN ('done', 'dead', 'cancelled'), 'gone', v.state = 'done' AND v.keep_done_ms <=> 0,
               'reason', CASE WHEN v.state <> 'dead' THEN NULL
                              WHEN v.kind IN ('invalid_args', 'unknown_name') THEN v.kind
                              WHEN v.permanent THEN 'permanent'
                              WHEN v.kind = 'lost' THEN 'lost'
                              ELSE 'exhausted' END,
               'run_at', CASE v.state WHEN 'scheduled' THEN
                             CAST(now + INTERVAL COALESCE(v.wait_ms, CAST(ROUND(v.backoff_ms * (1 + v.jitter * (2 * RAND() - 1))) AS SIGNED)) * 1000 MICROSECOND AS CHAR) END))
      INTO verdicts
      FROM (SELECT STRAIGHT_JOIN o.*, j.batch_id, d.keep_done_ms, COALESCE(d.backoff_jitter, 0.15) AS jitter,
                   CASE WHEN o.outcome = 'done' THEN 'done'
                        WHEN o.outcome = 'cancelled' OR j.cancel_at IS NOT NULL THEN 'cancelled'
                        WHEN o.outcome = 'released' THEN 'pending'
                        WHEN o.outcome = 'snoozed' THEN 'scheduled'
                        WHEN o.permanent OR o.kind = 'invalid_args' OR j.attempts >= j.max_attempts THEN 'dead'
                        ELSE 'scheduled' END AS state,
                   CASE WHEN d.backoff_base_ms = 0 OR d.backoff_max_ms = 0 THEN 0
                        WHEN LN(COALESCE(d.backoff_base_ms, 5000)) + (j.attempts - 1) * LN(COALESCE(d.backoff_factor, 4)) < LN(COALESCE(d.backoff_max_ms, 3600000))
                        THEN COALESCE(d.backoff_base_ms, 5000) * POW(COALESCE(d.backoff_factor, 4), j.attempts - 1)
                        ELSE COALESCE(d.backoff_max_ms, 3600000) END AS backoff_ms
              FROM (SELECT t.*, ROW_NUMBER() OVER (PARTITION BY t.id, t.token ORDER BY t.n) AS turn
                      FROM JSON_TABLE(said, '$[*]' COLUMNS (
                               n FOR ORDINALITY, id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token', outcome VARCHAR(9) CHARACTER SET ascii PATH '$.outcome',
                               kind VARCHAR(12) CHARACTER SET ascii PATH '$.kind', permanent INT PATH '$.permanent', wait_ms BIGINT PATH '$.wait_ms')) AS t) AS o
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = o.id AND j.token = o.token
              LEFT JOIN jobs_definitions d ON d.name = j.name
             WHERE o.turn = 1) AS v;
END//

-- Settle the attempts as they were judged; their rows are locked.
DROP PROCEDURE IF EXISTS jobs__conclude//
CREATE PROCEDURE jobs__conclude(said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, verdicts LONGTEXT CHARACTER SET ascii, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE ended, gone, batches LONGTEXT CHARACTER SET ascii;

    IF LOCATE('"failed"', said) > 0 THEN
        INSERT INTO jobs_failures (job_id, attempt, token, worker, kind, type, message, stack, started_at, failed_at)
        SELECT j.id, j.attempts, j.token, j.worker, o.kind, o.type, o.message, o.stack, j.started_at, now
          FROM JSON_TABLE(said, '$[*]' COLUMNS (
                   n FOR ORDINALITY, outcome VARCHAR(9) CHARACTER SET ascii PATH '$.outcome', kind VARCHAR(12) CHARACTER SET ascii PATH '$.kind', type LONGTEXT CHARACTER SET utf8mb4 PATH '$.type',
                   message LONGTEXT CHARACTER SET utf8mb4 PATH '$.message', stack LONGTEXT CHARACTER SET utf8mb4 PATH '$.stack')) AS o
               STRAIGHT_JOIN (SELECT t.n, t.id
                                FROM JSON_TABLE(verdicts, '$[*]' COLUMNS (n INT PATH '$.n', id CHAR(36) CHARACTER SET ascii PATH '$.id')) AS t
                               LIMIT 1000000) AS v ON v.n = o.n
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = v.id
          LEFT JOIN jobs_failures f FORCE INDEX (jobs_failures_attempt) ON f.job_id = j.id AND f.token = j.token  -- a token may meet its job again
         WHERE o.outcome = 'failed'
           AND f.id IS NULL;
    END IF;

    UPDATE JSON_TABLE(verdicts, '$[*]' COLUMNS (
               id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token', outcome VARCHAR(9) CHARACTER SET ascii PATH '$.outcome', state VARCHAR(9) CHARACTER SET ascii PATH '$.state',
               ended INT PATH '$.ended', reason VARCHAR(12) CHARACTER SET ascii PATH '$.reason', run_at VARCHAR(26) CHARACTER SET ascii PATH '$.run_at')) AS v
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = v.id
       SET j.state = v.state,
           j.token = NULL,
           j.worker = NULL,
           j.lease_until = NULL,
           j.settled_token = v.token,
           j.settled_as = v.outcome,
           j.attempts = CASE WHEN v.outcome IN ('released', 'snoozed') THEN j.attempts - 1 ELSE j.attempts END,
           j.run_at = COALESCE(v.run_at, j.run_at),
           j.finished_at = CASE WHEN v.ended THEN now END,
           j.dead_reason = v.reason;

    DELETE s
      FROM JSON_TABLE(verdicts, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id')) AS v
           STRAIGHT_JOIN jobs_slots s FORCE INDEX (jobs_slots_job) ON s.job_id = v.id;

    SELECT JSON_ARRAYAGG(v.id) INTO ended
      FROM JSON_TABLE(verdicts, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', ended INT PATH '$.ended')) AS v
     WHERE v.ended;
    IF ended IS NOT NULL THEN
        CALL jobs__free_keys(ended, FALSE);
    END IF;
    SELECT JSON_ARRAYAGG(v.id) INTO gone
      FROM JSON_TABLE(verdicts, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', gone INT PATH '$.gone')) AS v
     WHERE v.gone;
    IF gone IS NOT NULL THEN
        CALL jobs__remove(gone);
    END IF;
    SELECT JSON_ARRAYAGG(JSON_OBJECT('id', b.id, 'done', b.done, 'failed', b.failed)) INTO batches
      FROM (SELECT v.batch_id AS id, COUNT(*) AS done, SUM(v.state <> 'done') AS failed
              FROM JSON_TABLE(verdicts, '$[*]' COLUMNS (batch_id CHAR(36) CHARACTER SET ascii PATH '$.batch_id', ended INT PATH '$.ended', state VARCHAR(9) CHARACTER SET ascii PATH '$.state')) AS v
             WHERE v.ended
               AND v.batch_id IS NOT NULL
             GROUP BY v.batch_id) AS b;
    IF batches IS NOT NULL THEN
        CALL jobs__tally(batches, 1, now);
    END IF;
END//

-- Settle attempts that all are done; their rows are locked. `keyed` and `batched` say whether some of the jobs have a key, or a batch.
DROP PROCEDURE IF EXISTS jobs__settle_done//
CREATE PROCEDURE jobs__settle_done(said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, keyed BOOLEAN, batched BOOLEAN, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE ids, gone LONGTEXT CHARACTER SET ascii;
    DECLARE counted LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    DECLARE slots, fleeting INT;

    UPDATE JSON_TABLE(said, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token')) AS o
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = o.id
       SET j.state = 'done',
           j.token = NULL,
           j.worker = NULL,
           j.lease_until = NULL,
           j.settled_token = o.token,
           j.settled_as = 'done',
           j.finished_at = now;

    SELECT COUNT(*) INTO slots FROM (SELECT s.slot FROM jobs_slots s LIMIT 1) AS s;
    IF slots > 0 THEN
        DELETE s
          FROM JSON_TABLE(said, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id')) AS o
               STRAIGHT_JOIN jobs_slots s FORCE INDEX (jobs_slots_job) ON s.job_id = o.id;
    END IF;
    IF keyed OR batched THEN
        SET ids = JSON_EXTRACT(said, '$[*].id');
    END IF;
    IF batched THEN
        CALL jobs__count_in_batches(ids, TRUE, counted);
    END IF;
    IF keyed THEN
        CALL jobs__free_keys(ids, FALSE);
    END IF;
    SELECT COUNT(*) INTO fleeting FROM jobs_definitions d WHERE d.keep_done_ms = 0;
    IF fleeting > 0 THEN
        SELECT JSON_ARRAYAGG(j.id) INTO gone
          FROM JSON_TABLE(said, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id')) AS o
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = o.id
               STRAIGHT_JOIN jobs_definitions d ON d.name = j.name
         WHERE d.keep_done_ms = 0;
        IF gone IS NOT NULL THEN
            CALL jobs__remove(gone);
        END IF;
    END IF;
    IF counted <> '[]' THEN
        CALL jobs__tally(counted, 1, now);
    END IF;
END//

-- Settle attempts. Answers, as JSON, of each its number, id, whether it was accepted, and state, in the order given.
DROP PROCEDURE IF EXISTS jobs__settle//
CREATE PROCEDURE jobs__settle(said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6), OUT answers LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE number INT DEFAULT JSON_LENGTH(said);
    DECLARE held INT;
    DECLARE keyed, batched BOOLEAN;
    DECLARE verdicts LONGTEXT CHARACTER SET ascii;

    SELECT COUNT(*), MAX(h.keyed), MAX(h.batched) INTO held, keyed, batched
      FROM (SELECT STRAIGHT_JOIN j.unique_key IS NOT NULL AS keyed, j.batch_id IS NOT NULL AS batched
              FROM (SELECT DISTINCT t.id, t.token
                      FROM JSON_TABLE(said, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token')) AS t
                     ORDER BY id
                     LIMIT 1000000) AS o
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = o.id AND j.token = o.token
             LIMIT 1000000
               FOR UPDATE) AS h;
    IF held = number AND LOCATE('"kind"', said) = 0 THEN
        CALL jobs__settle_done(said, keyed, batched, now);
        SELECT JSON_ARRAYAGG(JSON_OBJECT('n', t.n, 'id', t.id, 'accepted', 1, 'state', 'done')) INTO answers
          FROM JSON_TABLE(said, '$[*]' COLUMNS (n FOR ORDINALITY, id CHAR(36) CHARACTER SET ascii PATH '$.id')) AS t;
    ELSE
        IF held > 0 THEN
            CALL jobs__judge(said, now, verdicts);
            CALL jobs__conclude(said, verdicts, now);
        END IF;
        SELECT JSON_ARRAYAGG(JSON_OBJECT(
                   'n', o.n, 'id', o.id, 'state', COALESCE(s.state, j.state),
                   'accepted', s.id IS NOT NULL OR f.id IS NOT NULL
                            OR COALESCE(j.settled_token = o.token AND j.settled_as = o.outcome, FALSE)))
          INTO answers
          FROM JSON_TABLE(said, '$[*]' COLUMNS (n FOR ORDINALITY, id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token', outcome VARCHAR(9) CHARACTER SET ascii PATH '$.outcome')) AS o
          LEFT JOIN (SELECT t.*
                       FROM JSON_TABLE(COALESCE(verdicts, '[]'), '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token', outcome VARCHAR(9) CHARACTER SET ascii PATH '$.outcome', state VARCHAR(9) CHARACTER SET ascii PATH '$.state')) AS t
                      LIMIT 1000000) AS s
            ON s.id = o.id AND s.token = o.token AND s.outcome = o.outcome
          LEFT JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = o.id
          LEFT JOIN jobs_failures f FORCE INDEX (jobs_failures_attempt)
            ON o.outcome = 'failed' AND f.job_id = o.id AND f.token = o.token;
    END IF;
END//

-- Settle attempts in a transaction of its own.
DROP PROCEDURE IF EXISTS jobs__settle_at_once//
CREATE PROCEDURE jobs__settle_at_once(said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT answers LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE now DATETIME(6);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            CALL jobs__put_back(settings);
            RESIGNAL;
        END;
        CALL jobs__set_aside(settings);
        SELECT c.now INTO now FROM jobs_clock c;
        CALL jobs__settle(said, now, answers);
        COMMIT;
        CALL jobs__put_back(settings);
    END;
END//

DROP PROCEDURE IF EXISTS jobs_settle//
CREATE PROCEDURE jobs_settle(id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, token LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, outcome LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, detail LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE job, holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE answers LONGTEXT CHARACTER SET ascii;
    CALL jobs__as_uuid(COALESCE(id, ''), 'id', job);
    CALL jobs__as_uuid(COALESCE(token, ''), 'token', holder);
    CALL jobs__read_outcome(job, holder, outcome, detail, '', said);
    CALL jobs__settle_at_once(CONCAT('[', said, ']'), answers);
    SELECT a.accepted, a.state
      FROM JSON_TABLE(answers, '$[*]' COLUMNS (accepted INT PATH '$.accepted', state VARCHAR(9) CHARACTER SET ascii PATH '$.state')) AS a;
END//

DROP PROCEDURE IF EXISTS jobs_settle_many//
CREATE PROCEDURE jobs_settle_many(outcomes LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE said LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE answers LONGTEXT CHARACTER SET ascii;
    CALL jobs__read_outcomes(outcomes, said);
    IF said <> '[]' THEN
        CALL jobs__settle_at_once(said, answers);
    END IF;
    SELECT a.id, a.accepted, a.state
      FROM JSON_TABLE(COALESCE(answers, '[]'), '$[*]' COLUMNS (n INT PATH '$.n', id CHAR(36) CHARACTER SET ascii PATH '$.id', accepted INT PATH '$.accepted', state VARCHAR(9) CHARACTER SET ascii PATH '$.state')) AS a
     ORDER BY a.n;
END//
