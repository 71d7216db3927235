-- jobs_enqueue, jobs_enqueue_with_id, jobs_enqueue_many: put jobs in, inside the caller's transaction.
--
-- What makes a repeat safe: the primary key (an id that is there already is answered, not inserted again) and the
-- primary key of jobs_keys (a unique key can be held once). A key is inserted before its job; an insert that meets a
-- holder which is not committed yet waits for it, and goes in if that one rolls back. Keys go in sorted, so that
-- two bulk callers wait for one another in one direction only.
--
-- A caller's transaction may be at REPEATABLE READ and long. So nothing here reads with a lock what may not be there, which would lock a gap;
-- definitions are read without one; and of what is there only the row of a key that was met held is locked, which settling passes by
-- (jobs__loose_keys), and the door of a batch, which no outcome needs.
--
-- The caller's transaction is never ended. What takes more than one statement is undone to a savepoint when one of them fails; a
-- caller without a transaction gets one for the length of the call. There is one if a savepoint is still there after it was set.
--
-- Many jobs are one INSERT. They are read by the engine where that tells everything about a job, set-wise, and one by one as text where it
-- does not: args or meta that are not flat, an option that is refused.

DELIMITER //

DROP PROCEDURE IF EXISTS jobs__begin//
CREATE PROCEDURE jobs__begin(OUT alone BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 SET alone = TRUE;
    SET alone = FALSE;
    SAVEPOINT jobs__call;
    RELEASE SAVEPOINT jobs__call;
    IF alone THEN
        START TRANSACTION;
    ELSE
        SAVEPOINT jobs__call;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs__end//
CREATE PROCEDURE jobs__end(alone BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    IF alone THEN
        COMMIT;
    ELSE
        RELEASE SAVEPOINT jobs__call;
    END IF;
END//

-- (After a deadlock the engine has undone the whole transaction: then there is no savepoint.)
DROP PROCEDURE IF EXISTS jobs__undo//
CREATE PROCEDURE jobs__undo(alone BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 BEGIN END;
    IF alone THEN
        ROLLBACK;
    ELSE
        ROLLBACK TO SAVEPOINT jobs__call;
    END IF;
END//

-- The args as they are stored: JSON of any kind, no longer than the setting allows.
DROP PROCEDURE IF EXISTS jobs__args//
CREATE PROCEDURE jobs__args(INOUT args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE most LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE valid BOOLEAN;
    IF args IS NULL THEN
        SET args = '{}';
    ELSE
        CALL jobs__setting('max_args_bytes', most);
        IF LENGTH(args) > most THEN
            CALL jobs__refuse('PJ002', CONCAT(place, ' are ', LENGTH(args), ' bytes of JSON, more than max_args_bytes, which is ', most),
                              'keep the data elsewhere and pass its id, or raise the setting with jobs_set');
        END IF;
        CALL jobs__is_json(args, valid);
        IF NOT valid THEN
            CALL jobs__refuse('PJ002', CONCAT(place, ' are not JSON'), 'pass a JSON text such as {"user_id": 1}');
        END IF;
    END IF;
END//

-- Args that stand inside a JSON document: a string holds their text, anything else is taken as it is written.
DROP PROCEDURE IF EXISTS jobs__inner_args//
CREATE PROCEDURE jobs__inner_args(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE unkept BOOLEAN;
    CALL jobs__json(members, 'args', args);
    IF LEFT(args, 1) = '"' THEN
        CALL jobs__is_unkept(args, unkept);
        IF unkept THEN
            CALL jobs__refuse('PJ002', CONCAT(place, ' are not JSON'), 'a character that no JSON may hold unescaped stands in them');
        END IF;
        SET args = JSON_UNQUOTE(args);
    END IF;
    CALL jobs__args(args, place);
END//

-- The tenant in scope of this session.
DROP PROCEDURE IF EXISTS jobs__scope//
CREATE PROCEDURE jobs__scope(OUT scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    SET scope = NULLIF(CONVERT(@pyjobs_tenant USING utf8mb4), '');
    CALL jobs__fit(scope, 'the tenant in scope');
END//

-- What a definition and options make of a job, but for its id, args and bucket; `kept` is for how long its unique key is kept, `bound` and `path` what
-- its bucket is made of. `scope` is the tenant in scope. A name that is not defined has the defaults, or is refused
-- where `name_place` says how to call it.
DROP PROCEDURE IF EXISTS jobs__draft//
CREATE PROCEDURE jobs__draft(
    name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, name_place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, known LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT priority BIGINT, OUT max_attempts BIGINT, OUT timeout_ms BIGINT, OUT bound LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT path LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT now DATETIME(6), OUT run_at DATETIME(6), OUT state LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT unique_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT kept LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT tenant LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE members, text_given LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE given, delay_ms BIGINT;
    DECLARE defined INT DEFAULT 0;

    SET queue = 'default';
    SET priority = 0;
    SET max_attempts = 5;
    SET timeout_ms = NULL;
    SET bound = NULL;
    SET path = NULL;
    SET run_at = NULL;
    SET unique_key = NULL;
    SET kept = NULL;
    SET tenant = scope;
    SET batch_id = NULL;
    SET meta = NULL;
    SELECT 1, d.queue, d.priority, d.max_attempts, d.timeout_ms, d.concurrency_group, d.concurrency_key
      INTO defined, queue, priority, max_attempts, timeout_ms, bound, path
      FROM jobs_definitions d
     WHERE d.name = name;
    IF NOT defined AND name_place IS NOT NULL THEN
        CALL jobs__refuse_undefined(name, name_place);
    END IF;
    SELECT c.now INTO now FROM jobs_clock c;

    CALL jobs__members(options, CONCAT(place, 'options'), known, members);
    IF members <> '{}' THEN
        CALL jobs__name(members, 'queue', place, text_given);
        SET queue = COALESCE(text_given, queue);
        CALL jobs__integer(members, 'priority', place, -32768, 32767, given);
        SET priority = COALESCE(given, priority);
        CALL jobs__integer(members, 'max_attempts', place, 1, 2147483647, given);
        SET max_attempts = COALESCE(given, max_attempts);
        CALL jobs__duration(members, 'timeout_ms', place, 1, given);
        SET timeout_ms = COALESCE(given, timeout_ms);
        CALL jobs__duration(members, 'delay_ms', place, 0, delay_ms);
        CALL jobs__moment(members, 'run_at', place, run_at);
        CALL jobs__name(members, 'unique_key', place, unique_key);
        CALL jobs__text(members, 'unique_for', place, kept);
        IF JSON_CONTAINS_PATH(members, 'one', '$.tenant') THEN
            CALL jobs__name(members, 'tenant', place, tenant);
        END IF;
        CALL jobs__uuid(members, 'batch_id', place, batch_id);
        CALL jobs__object(members, 'meta', place, meta);

        IF kept NOT IN ('active', 'row', 'ever') THEN
            CALL jobs__refuse('PJ003', CONCAT(place, 'unique_for is ', JSON_QUOTE(LEFT(kept, 40))), 'it can be "active", "row" or "ever"');
        ELSEIF unique_key LIKE 'schedule:%' OR unique_key LIKE 'batch:%' THEN
            -- What fires a moment once must not be there for anybody to take.
            CALL jobs__refuse('PJ003', CONCAT(place, 'unique_key begins with schedule: or batch:'), 'keys that begin so are the queue''s own: begin it otherwise');
        ELSEIF kept IS NOT NULL AND unique_key IS NULL THEN
            CALL jobs__refuse('PJ003', CONCAT(place, 'unique_for is given without unique_key'), 'say which key is to be unique');
        ELSEIF delay_ms IS NOT NULL AND run_at IS NOT NULL THEN
            CALL jobs__refuse('PJ003', CONCAT(place, 'delay_ms and run_at are both given'), 'a job runs at a moment or after a delay');
        ELSEIF LENGTH(meta) > 16384 THEN
            CALL jobs__refuse('PJ003', CONCAT(place, 'meta has ', LENGTH(meta), ' bytes'), 'it can have 16384: put more into args');
        ELSEIF tenant <> scope THEN
            CALL jobs__refuse('PJ009', CONCAT(place, 'tenant is ', JSON_QUOTE(tenant), ' while ', JSON_QUOTE(scope), ' is in scope'),
                              'leave the scope first: SET @pyjobs_tenant = NULL');
        END IF;
    END IF;

    SET run_at = COALESCE(run_at, TIMESTAMPADD(MICROSECOND, COALESCE(delay_ms, 0) * 1000, now));
    SET state = IF(run_at > now, 'scheduled', 'pending');
    IF unique_key IS NOT NULL THEN
        SET kept = COALESCE(kept, 'active');
    END IF;
END//

-- Lock a batch against sealing, and count jobs that go in.
DROP PROCEDURE IF EXISTS jobs__join_batch//
CREATE PROCEDURE jobs__join_batch(batch_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE shut BOOLEAN;
    UPDATE jobs__doors d SET d.joined = d.joined + number WHERE d.batch_id = batch_id AND NOT d.shut;
    SELECT d.shut INTO shut FROM jobs__doors d WHERE d.batch_id = batch_id FOR UPDATE;
    IF shut THEN
        CALL jobs__refuse('PJ004', CONCAT('the batch ', batch_id, ' is sealed'), 'open another batch for more jobs');
    ELSEIF shut IS NULL THEN
        CALL jobs__refuse('PJ005', CONCAT('there is no batch ', batch_id), 'open it first with jobs_open_batch');
    END IF;
END//

-- Take a unique key for a job; `holder` is that job, or the one that holds the key.
DROP PROCEDURE IF EXISTS jobs__take_key//
CREATE PROCEDURE jobs__take_key(unique_key VARBINARY(1024), job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, kept VARCHAR(12) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6), OUT holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE loose INT DEFAULT 0;
    SET holder = NULL;
    SELECT k.job_id INTO holder FROM jobs_keys k WHERE k.`key` = unique_key;
    IF holder IS NOT NULL THEN  -- in the snapshot: what is there now may be another, or none
        SET holder = NULL;
        SELECT k.job_id INTO holder FROM jobs_keys k WHERE k.`key` = unique_key LOCK IN SHARE MODE;
        SELECT COUNT(*) INTO loose FROM jobs__loose_keys l WHERE l.`key` = unique_key AND l.job_id = holder;
        IF loose THEN
            UPDATE jobs_keys k SET k.job_id = job, k.kept = kept, k.since = now WHERE k.`key` = unique_key AND k.job_id = holder;
            DELETE l FROM jobs__loose_keys l WHERE l.`key` = unique_key;
        END IF;
    END IF;
    IF holder IS NULL THEN
        INSERT INTO jobs_keys (`key`, job_id, kept, since) VALUES (unique_key, job, kept, now)
        ON DUPLICATE KEY UPDATE since = jobs_keys.since;
    END IF;
    IF holder IS NULL OR loose THEN
        SELECT k.job_id INTO holder FROM jobs_keys k WHERE k.`key` = unique_key FOR UPDATE;
    END IF;
END//

-- Insert a job, unless its id is there.
DROP PROCEDURE IF EXISTS jobs__insert//
CREATE PROCEDURE jobs__insert(
    id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, state LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, priority BIGINT, run_at DATETIME(6), bucket VARBINARY(2284), max_attempts BIGINT, timeout_ms BIGINT,
    unique_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, tenant LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, batch_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6), args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT inserted BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE present INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR 1062 SET inserted = FALSE;
    SET inserted = TRUE;
    SELECT COUNT(*) INTO present FROM jobs j WHERE j.id = id;  -- or the insert that meets it would lock it
    IF present THEN
        SET inserted = FALSE;
    ELSE
        INSERT INTO jobs (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, tenant, batch_id, enqueued_at, args, meta)
        VALUES (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, tenant, batch_id, now, args, meta);
    END IF;
END//

-- Put a job in, unless its id is there or its key is held. `id` becomes that of the job that is there in its stead.
DROP PROCEDURE IF EXISTS jobs__admit//
CREATE PROCEDURE jobs__admit(
    INOUT id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, state LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, priority BIGINT, run_at DATETIME(6), bucket VARBINARY(2284), max_attempts BIGINT, timeout_ms BIGINT,
    unique_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, kept LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, tenant LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, batch_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6), args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT inserted BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE present INT DEFAULT 0;
    DECLARE holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    SET inserted = FALSE;
    SELECT COUNT(*) INTO present FROM jobs j WHERE j.id = id;
    IF NOT present THEN
        SET holder = id;
        IF unique_key IS NOT NULL THEN
            CALL jobs__take_key(unique_key, id, kept, now, holder);
        END IF;
        IF holder = id THEN
            IF batch_id IS NOT NULL THEN
                CALL jobs__join_batch(batch_id, 1);
            END IF;
            CALL jobs__insert(id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, tenant, batch_id, now, args, meta, inserted);
            IF NOT inserted THEN  -- the same id went in elsewhere meanwhile: neither key nor place is needed here
                DELETE k FROM jobs_keys k WHERE k.`key` = CAST(unique_key AS BINARY) AND k.job_id = id;
                UPDATE jobs__doors d SET d.joined = d.joined - 1 WHERE d.batch_id = batch_id;
            END IF;
        END IF;
        SET id = holder;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_enqueue_with_id//
CREATE PROCEDURE jobs_enqueue_with_id(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE scope, queue, bound, path, state, unique_key, kept, tenant, meta, batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms BIGINT;
    DECLARE moment, run_at DATETIME(6);
    DECLARE bucket VARBINARY(2284);
    DECLARE job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE alone, inserted BOOLEAN;

    CALL jobs__scope(scope);
    CALL jobs__draft(name, 'name', options, '', scope,
                     'queue, priority, max_attempts, timeout_ms, run_at, delay_ms, unique_key, unique_for, tenant, batch_id, meta',
                     queue, priority, max_attempts, timeout_ms, bound, path, moment, run_at, state, unique_key, kept, tenant, batch_id, meta);
    CALL jobs__args(args, 'args');
    IF id IS NULL THEN
        CALL jobs__new_id(job);
    ELSE
        CALL jobs__as_uuid(id, 'id', job);
    END IF;
    CALL jobs__bucket(bound, path, args, bucket);

    IF unique_key IS NULL AND batch_id IS NULL THEN  -- one statement, so whole or not at all
        CALL jobs__insert(job, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, NULL, tenant, NULL, moment, args, meta, inserted);
    ELSE
        BEGIN
            DECLARE EXIT HANDLER FOR SQLEXCEPTION
            BEGIN
                CALL jobs__undo(alone);
                RESIGNAL;
            END;
            CALL jobs__begin(alone);
            CALL jobs__admit(job, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, kept, tenant, batch_id, moment, args, meta, inserted);
            CALL jobs__end(alone);
        END;
    END IF;
    SELECT job AS id;
END//

-- The same with an id made here. (A procedure has as many arguments as it has: none can be left out.)
DROP PROCEDURE IF EXISTS jobs_enqueue//
CREATE PROCEDURE jobs_enqueue(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    CALL jobs_enqueue_with_id(name, args, options, NULL);
END//
