-- jobs_define: inserts or changes what a job name stands for. jobs_forget: removes it.
--
-- A limit belongs to a group, and a group's row says it once: the foreign key from definitions to (name, slots) makes
-- two limits in one group impossible. Those who define in one group take turns behind the lock of its row, so that the
-- second one meets what the first did, and is refused (PJ008) where the two disagree.
--
-- Jobs that wait already get their bucket in the same transaction. Their rows are locked in the order of their ids, as
-- everywhere; a claim skips rows that are locked, and so neither waits for this nor deadlocks with it. A job whose
-- enqueuer read the old definition and commits after this is put right by the claim that meets it.
--
-- Where nothing changes nothing is written: workers call this whenever they start.

DELIMITER //

-- Refuses a name that is not defined.
DROP PROCEDURE IF EXISTS jobs__refuse_undefined//
CREATE PROCEDURE jobs__refuse_undefined(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE hint LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';
    DECLARE other VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE number INT DEFAULT 0;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE defined CURSOR FOR SELECT d.name FROM jobs_definitions d ORDER BY d.name LIMIT 100;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    CALL jobs__fit(COALESCE(name, ''), place);
    OPEN defined;  -- GROUP_CONCAT would be cut
    FETCH defined INTO other;
    WHILE NOT ended DO
        SET hint = CONCAT(hint, ', ', other);
        FETCH defined INTO other;
    END WHILE;
    CLOSE defined;
    CALL jobs__refuse('PJ001', CONCAT('no job named ', JSON_QUOTE(name), ' is defined (', place, ')'),
                      CASE hint WHEN '' THEN 'nothing is defined yet: call jobs_define, or run pyjobs sync'
                                ELSE CONCAT('defined are ', SUBSTRING(hint, 3)) END);
END//

-- The value at a path of keys in args, as it was written; NULL where there is none. Of a key given twice the last counts.
DROP PROCEDURE IF EXISTS jobs__at_path//
CREATE PROCEDURE jobs__at_path(args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, path LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE rest, step, pieces, member, found LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE EXIT HANDLER FOR 3698, 3699  -- MySQL gives up
        CALL jobs__refuse('PJ002', 'args are too long for the value of their concurrency key to be read', 'give that value as a string');

    SET value = args;
    SET rest = CONCAT(path, '.');
    WHILE rest <> '' DO
        SET step = SUBSTRING_INDEX(rest, '.', 1);
        SET rest = SUBSTRING(rest, CHAR_LENGTH(step) + 2);
        SET found = NULL;
        IF value REGEXP '^[ \\t\\n\\r]*+\\{' THEN
            CALL jobs__split(value, pieces);
            WHILE pieces <> '' DO
                CALL jobs__next_member(pieces, member, value);
                IF CAST(member AS BINARY) = CAST(step AS BINARY) THEN
                    SET found = value;
                END IF;
            END WHILE;
        END IF;
        SET value = found;
    END WHILE;
END//

-- What a job is bounded by: its group alone, or the group and the scalar that stands at the path `path` in its args.
-- The value is cut so that a bucket fits into every engine's index: jobs whose values differ only behind the cut
-- share a bucket, which is stricter, never looser. A number counts as it was written.
DROP PROCEDURE IF EXISTS jobs__bucket//
CREATE PROCEDURE jobs__bucket(bound LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, path LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT bucket VARBINARY(2284))
SQL SECURITY DEFINER
BEGIN
    DECLARE value, found LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE unkept BOOLEAN;
    DECLARE told BOOLEAN DEFAULT FALSE;

    IF bound IS NULL OR path IS NULL THEN
        SET bucket = bound;
    ELSE
        -- The engine reads most as it was written, however long args are. Of MariaDB a key given twice hides its last value.
        IF VERSION() NOT LIKE '%MariaDB%' AND JSON_VALID(args) AND LOCATE('\\u0000', args) = 0 THEN
            SET found = COALESCE(JSON_EXTRACT(args, CONCAT('$.', REPLACE(JSON_QUOTE(path), '.', '"."'))), 'null');
            SET told = JSON_TYPE(found) NOT IN ('DOUBLE', 'DECIMAL') AND (found <> '0' OR LOCATE('-0', args) = 0);
        END IF;
        IF told THEN
            SET value = found;
        ELSE
            CALL jobs__at_path(args, path, value);
        END IF;

        IF value IS NULL OR value = 'null' OR LEFT(value, 1) IN ('{', '[') THEN
            SET value = 'null';
        ELSEIF LEFT(value, 1) = '"' THEN
            CALL jobs__is_unkept(value, unkept);
            SET value = IF(unkept, SUBSTRING(value, 2, CHAR_LENGTH(value) - 2), JSON_UNQUOTE(value));
        END IF;
        SET bucket = CONCAT(bound, ':', LEFT(value, 380));
    END IF;
END//

-- Make the group have that many slots, unless another definition of it says otherwise. It is then locked.
DROP PROCEDURE IF EXISTS jobs__bound_group//
CREATE PROCEDURE jobs__bound_group(name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, bound VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, most INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE present INT;
    DECLARE other VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

    INSERT INTO jobs_groups (name, slots) VALUES (bound, most)
    ON DUPLICATE KEY UPDATE slots = jobs_groups.slots;
    SELECT g.slots INTO present FROM jobs_groups g WHERE g.name = bound FOR UPDATE;
    IF present <> most THEN
        SELECT MIN(d.name) INTO other
          FROM jobs_definitions d
         WHERE d.concurrency_group = bound
           AND d.name <> name;
        IF other IS NOT NULL THEN
            CALL jobs__refuse(
                'PJ008',
                CONCAT('the group ', JSON_QUOTE(bound), ' has the limit ', present, ' by the job ', JSON_QUOTE(other), ', not ', most),
                'give all jobs of a group one limit, or name another group');
        END IF;
        -- Nothing may refer to the old limit while it changes.
        UPDATE jobs_definitions d
           SET d.concurrency_key = NULL, d.concurrency_group = NULL, d.concurrency_limit = NULL
         WHERE d.name = name
           AND d.concurrency_group = bound;
        UPDATE jobs_groups g SET g.slots = most WHERE g.name = bound;
    END IF;
END//

-- Put the waiting jobs of a definition into the buckets it says. The waiting are found by the indexes of waiting work,
-- whatever else the table holds, and each is looked at again under its lock.
DROP PROCEDURE IF EXISTS jobs__rebucket//
CREATE PROCEDURE jobs__rebucket(name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, bound VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, path VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE given LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE present, wanted VARBINARY(2284);
    DECLARE status VARCHAR(12) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE waiting CURSOR FOR
        SELECT w.id
          FROM (SELECT p.id FROM jobs p FORCE INDEX (jobs_lanes) WHERE p.stage IN ('line', 'limited') AND p.name = name
                UNION ALL
                SELECT s.id FROM jobs s FORCE INDEX (jobs_due) WHERE s.due_at IS NOT NULL AND s.name = name) AS w
         ORDER BY w.id;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    SET wanted = bound;
    OPEN waiting;
    FETCH waiting INTO job;
    WHILE NOT ended DO
        SET status = NULL;
        SELECT j.state, j.bucket, j.args INTO status, present, given FROM jobs j WHERE j.id = job FOR UPDATE;
        IF status IN ('scheduled', 'pending') THEN
            IF path IS NOT NULL THEN
                CALL jobs__bucket(bound, path, given, wanted);
            END IF;
            IF NOT wanted <=> present THEN
                UPDATE jobs j SET j.bucket = wanted WHERE j.id = job;
            END IF;
        END IF;
        SET ended = FALSE;  -- one that is gone was not found either
        FETCH waiting INTO job;
    END WHILE;
    CLOSE waiting;
END//

DROP PROCEDURE IF EXISTS jobs__define//
CREATE PROCEDURE jobs__define(
    name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, queue VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, priority INT, max_attempts INT, timeout_ms BIGINT,
    base_ms BIGINT, factor DOUBLE, max_ms BIGINT, jitter DOUBLE,
    bound VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, most INT, path VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, keep_done_ms BIGINT, keep_dead_ms BIGINT)
SQL SECURITY DEFINER
BEGIN
    DECLARE known, same INT DEFAULT 0;
    DECLARE former_bound, former_path VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

    SELECT COUNT(*) INTO same
      FROM jobs_definitions d
     WHERE d.name = name
       AND d.queue = queue AND d.priority = priority AND d.max_attempts = max_attempts AND d.timeout_ms <=> timeout_ms
       AND d.backoff_base_ms = base_ms AND d.backoff_factor = factor AND d.backoff_max_ms = max_ms AND d.backoff_jitter = jitter
       AND d.concurrency_group <=> bound AND d.concurrency_limit <=> most AND d.concurrency_key <=> path
       AND d.keep_done_ms = keep_done_ms AND d.keep_dead_ms <=> keep_dead_ms;
    IF same = 0 THEN
        SELECT 1, d.concurrency_group, d.concurrency_key INTO known, former_bound, former_path
          FROM jobs_definitions d WHERE d.name = name FOR UPDATE;
        IF bound IS NOT NULL THEN
            CALL jobs__bound_group(name, bound, most);
        END IF;
        INSERT INTO jobs_definitions (name, queue, priority, max_attempts, timeout_ms, backoff_base_ms, backoff_factor, backoff_max_ms, backoff_jitter,
                                      concurrency_group, concurrency_limit, concurrency_key, keep_done_ms, keep_dead_ms)
        VALUES (name, queue, priority, max_attempts, timeout_ms, base_ms, factor, max_ms, jitter, bound, most, path, keep_done_ms, keep_dead_ms)
        ON DUPLICATE KEY UPDATE
               queue = VALUES(queue),
               priority = VALUES(priority),
               max_attempts = VALUES(max_attempts),
               timeout_ms = VALUES(timeout_ms),
               backoff_base_ms = VALUES(backoff_base_ms),
               backoff_factor = VALUES(backoff_factor),
               backoff_max_ms = VALUES(backoff_max_ms),
               backoff_jitter = VALUES(backoff_jitter),
               concurrency_group = VALUES(concurrency_group),
               concurrency_limit = VALUES(concurrency_limit),
               concurrency_key = VALUES(concurrency_key),
               keep_done_ms = VALUES(keep_done_ms),
               keep_dead_ms = VALUES(keep_dead_ms);
        IF known = 0 OR NOT former_bound <=> bound OR NOT former_path <=> path THEN
            CALL jobs__rebucket(name, bound, path);
        END IF;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_define//
CREATE PROCEDURE jobs_define(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE members, part, queue, bound, path LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms, keep_done_ms, keep_dead_ms, base_ms, max_ms, most BIGINT;
    DECLARE factor, jitter DOUBLE;

    CALL jobs__fit(COALESCE(name, ''), 'name');
    CALL jobs__members(options, 'options', 'queue, priority, max_attempts, timeout_ms, backoff, concurrency, keep_done_ms, keep_dead_ms', members);
    CALL jobs__name(members, 'queue', '', queue);
    CALL jobs__integer(members, 'priority', '', -32768, 32767, priority);
    CALL jobs__integer(members, 'max_attempts', '', 1, 2147483647, max_attempts);
    CALL jobs__duration(members, 'timeout_ms', '', 1, timeout_ms);
    CALL jobs__duration(members, 'keep_done_ms', '', 0, keep_done_ms);
    CALL jobs__duration(members, 'keep_dead_ms', '', 0, keep_dead_ms);

    CALL jobs__json(members, 'backoff', part);
    CALL jobs__members(part, 'backoff', 'base_ms, factor, max_ms, jitter', part);
    CALL jobs__duration(part, 'base_ms', 'backoff.', 0, base_ms);
    CALL jobs__number(part, 'factor', 'backoff.', 1, 1000000, factor);
    CALL jobs__duration(part, 'max_ms', 'backoff.', 0, max_ms);
    CALL jobs__number(part, 'jitter', 'backoff.', 0, 1, jitter);

    CALL jobs__json(members, 'concurrency', part);
    IF part IS NOT NULL THEN
        CALL jobs__members(part, 'concurrency', 'limit, group, key', part);
        CALL jobs__integer(part, 'limit', 'concurrency.', 1, 1000000, most);
        CALL jobs__name(part, 'group', 'concurrency.', bound);
        CALL jobs__name(part, 'key', 'concurrency.', path);
        SET bound = COALESCE(bound, name);
        IF most IS NULL THEN
            CALL jobs__refuse('PJ003', 'concurrency.limit is missing', 'say how many may run at once, such as {"limit": 1}');
        ELSEIF INSTR(bound, ':') > 0 THEN
            CALL jobs__refuse('PJ003', CONCAT('concurrency.group ', JSON_QUOTE(bound), ' holds a colon'),
                              'give the group a name without one: the colon parts it from the value of the key');
        END IF;
    END IF;

    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        CALL jobs__define(
            name, COALESCE(queue, 'default'), COALESCE(priority, 0), COALESCE(max_attempts, 5), timeout_ms,
            COALESCE(base_ms, 5000), COALESCE(factor, 4), COALESCE(max_ms, 3600000), COALESCE(jitter, 0.15),
            bound, most, path, COALESCE(keep_done_ms, 86400000), keep_dead_ms);
        COMMIT;
    END;
END//

DROP PROCEDURE IF EXISTS jobs_forget//
CREATE PROCEDURE jobs_forget(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE forgotten BOOLEAN;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        DELETE d FROM jobs_definitions d WHERE d.name = name;
        SET forgotten = ROW_COUNT() > 0;
        COMMIT;
    END;
    SELECT forgotten;
END//
