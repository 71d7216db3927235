-- jobs_enqueue, jobs_enqueue_with_id, jobs_enqueue_many: put jobs in, inside the caller's transaction.
--
-- What makes a repeat safe: the primary key (an id that is there already is answered, not inserted again) and the
-- primary key of jobs_keys (a unique key can be held once). A key is inserted before its job; an insert that meets a
-- holder which is not committed yet waits for it, and goes in if that one rolls back. Keys go in sorted, so that
-- two bulk callers wait for one another in one direction only.
--
-- A caller's transaction may be at REPEATABLE READ and long. So nothing here reads with a lock what may not be there, which would lock a gap;
-- definitions are read without one; and of what is there only the row of a key that was met held is locked, which settling passes by
-- (jobs__loose_keys), and the door of a batch, which no outcome needs. That a key was passed by is read without a lock too: the lock would keep
-- settles from saying so of others. So to a snapshot from before that, the key is held yet: the answer is the job that held it when the transaction
-- began to read, as if that had ended just after the call.
--
-- The caller's transaction is never ended. What takes more than one statement is undone to a savepoint when one of them fails; a
-- caller without a transaction gets one for the length of the call. There is one if a savepoint is still there after it was set.
--
-- Many jobs are one INSERT: straight from the document where they are what most are (jobs__insert_bare), else from a temporary table. They are
-- read by the engine where that tells everything about a job, set-wise, and one by one as text where it does not: args or meta that are not
-- flat, an option that is refused.

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

-- (After a deadlock the engine has undone the whole transaction: then there is no savepoint. Where a call fails before it has begun,
-- `alone` is NULL and nothing is to be undone: a savepoint of that name would be an earlier call's.)
DROP PROCEDURE IF EXISTS jobs__undo//
CREATE PROCEDURE jobs__undo(alone BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 BEGIN END;
    IF alone THEN
        ROLLBACK;
    ELSEIF NOT alone THEN
        ROLLBACK TO SAVEPOINT jobs__call;
        RELEASE SAVEPOINT jobs__call;
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
    DECLARE CONTINUE HANDLER FOR 1300 SET scope = NULL;
    SET scope = CONVERT(@pyjobs_tenant USING utf8mb4);
    -- What was set as bytes is text only if it is UTF-8. (Of what is not, MySQL makes NULL and MariaDB error 1300.)
    IF @pyjobs_tenant IS NOT NULL AND scope IS NULL OR LOCATE(CHAR(0 USING utf8mb4), scope) > 0 THEN
        CALL jobs__refuse('PJ010', 'the tenant in scope is not a text that can be kept', 'set @pyjobs_tenant to a text of 1 to 190 characters, or to NULL for none');
    END IF;
    SET scope = NULLIF(scope, '');
    CALL jobs__fit(scope, 'the tenant in scope');
END//

-- What a definition and options make of a job, but for its id, args and bucket; `kept` is for how long its unique key is kept, `bound` and `path` what
-- its bucket is made of. `scope` is the tenant in scope. A name that is not defined has the defaults, or is refused
-- where `name_place` says how to call it. `now` is the moment of the call, which the clock is asked for where it is not known yet.
DROP PROCEDURE IF EXISTS jobs__draft//
CREATE PROCEDURE jobs__draft(
    name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, name_place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, known LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT priority BIGINT, OUT max_attempts BIGINT, OUT timeout_ms BIGINT, OUT bound LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT path LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    INOUT now DATETIME(6), OUT run_at DATETIME(6), OUT state LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT unique_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT kept LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT tenant LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
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
    IF now IS NULL THEN
        SELECT c.now INTO now FROM jobs_clock c;
    END IF;

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
        IF loose THEN  -- in the snapshot: by now the holder may have been put back, with its key
            DELETE l FROM jobs__loose_keys l WHERE l.`key` = unique_key AND l.job_id = holder;
            SET loose = ROW_COUNT() > 0;
        END IF;
        IF loose THEN
            UPDATE jobs_keys k SET k.job_id = job, k.kept = kept, k.since = now WHERE k.`key` = unique_key AND k.job_id = holder;
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

-- The jobs of one call, while it lasts: what is known of each. `odd` are those that the engine does not tell everything about.
DROP PROCEDURE IF EXISTS jobs__make_room//
CREATE PROCEDURE jobs__make_room()
SQL SECURITY DEFINER
BEGIN
    DROP TEMPORARY TABLE IF EXISTS jobs__incoming;
    CREATE TEMPORARY TABLE jobs__incoming (
        n             INT           NOT NULL PRIMARY KEY,
        id            CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
        name          VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
        args          LONGTEXT,
        queue         VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
        priority      SMALLINT,
        max_attempts  INT,
        timeout_ms    BIGINT,
        run_at        DATETIME(6),
        unique_key    VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
        kept          VARCHAR(12) CHARACTER SET ascii COLLATE ascii_bin,
        tenant        VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
        batch_id      CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
        meta          LONGTEXT,
        bucket        VARBINARY(2284),
        odd           BOOLEAN       NOT NULL DEFAULT FALSE,
        piece         LONGTEXT,
        answer        CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
        enters        BOOLEAN       NOT NULL DEFAULT TRUE,
        known         INT
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
END//

-- Read all of the jobs as far as the engine can. Each that is not plainly right is left odd.
DROP PROCEDURE IF EXISTS jobs__read_plain//
CREATE PROCEDURE jobs__read_plain(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE most LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE prefix CHAR(18) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE lax BOOLEAN DEFAULT VERSION() LIKE '%MariaDB%';
    -- (Not in every year is there a 29th of February.)
    DECLARE a_moment VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT CONCAT(
        '^(?!0)[0-8][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))',
        'T(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\\.[0-9]{1,6})?)?(?:Z|[-+](?:0[0-9]|1[0-5]):[0-5][0-9])\\z');
    CALL jobs__setting('max_args_bytes', most);
    CALL jobs__id_prefix(prefix);

    INSERT INTO jobs__incoming (n, id, name, args, queue, priority, max_attempts, timeout_ms, run_at, unique_key, kept, tenant, batch_id, meta, known, odd)
    SELECT t.n,
           CASE WHEN t.id IS NULL THEN CONCAT(prefix, '-', LOWER(LEFT(HEX(8388608 + t.n), 4)), '-', LOWER(RIGHT(HEX(8388608 + t.n), 2)), LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 10))
                WHEN t.id REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z' THEN LOWER(t.id) END,
           LEFT(t.name, 190),
           COALESCE(t.args, '{}'),
           LEFT(t.queue, 190),
           CASE WHEN t.j_priority REGEXP '^-?[0-9]{1,4}\\z' THEN CAST(CAST(t.j_priority AS CHAR) AS SIGNED) END,
           CASE WHEN t.j_max_attempts REGEXP '^[1-9][0-9]{0,8}\\z' THEN CAST(CAST(t.j_max_attempts AS CHAR) AS SIGNED) END,
           CASE WHEN t.j_timeout_ms REGEXP '^[1-9][0-9]{0,12}\\z' THEN CAST(CAST(t.j_timeout_ms AS CHAR) AS SIGNED) END,
           CASE WHEN t.run_at REGEXP a_moment
                THEN TIMESTAMPADD(MINUTE, IF(t.run_at LIKE '%Z', 0, CONCAT(IF(SUBSTRING(t.run_at, -6, 1) = '-', '', '-'), '1') * (SUBSTRING(t.run_at, -5, 2) * 60 + RIGHT(t.run_at, 2))),
                                  CAST(REPLACE(LEFT(t.run_at, CHAR_LENGTH(t.run_at) - IF(t.run_at LIKE '%Z', 1, 6)), 'T', ' ') AS DATETIME(6)))
                ELSE TIMESTAMPADD(MICROSECOND, CASE WHEN t.j_delay_ms REGEXP '^[0-9]{1,13}\\z' THEN CAST(CAST(t.j_delay_ms AS CHAR) AS SIGNED) ELSE 0 END * 1000, now) END,
           LEFT(t.unique_key, 190),
           CASE WHEN t.unique_key IS NOT NULL THEN COALESCE(CASE WHEN t.unique_for IN ('active', 'row', 'ever') THEN t.unique_for END, 'active') END,
           LEFT(CASE WHEN t.h_tenant THEN t.tenant ELSE scope END, 190),
           CASE WHEN t.batch_id REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z' THEN LOWER(t.batch_id) END,
           CASE WHEN t.h_meta THEN '' END,  -- is read as text: jobs__read_metas
           -- how many members the engine knows of this one
           t.h_name + t.h_args + t.h_id + t.h_options + t.h_queue + t.h_priority + t.h_max_attempts + t.h_timeout_ms + t.h_delay_ms
               + t.h_run_at + t.h_unique_key + t.h_unique_for + t.h_tenant + t.h_batch_id + t.h_meta,
           NOT COALESCE(
               LEFT(CAST(t.j_name AS CHAR), 1) = '"' AND CHAR_LENGTH(t.name) BETWEEN 1 AND 190
               AND (t.h_args = 0 OR LEFT(CAST(t.j_args AS CHAR), 1) = '"' AND LENGTH(t.args) <= most AND JSON_VALID(t.args)
                    AND (NOT lax OR LENGTH(t.args) < 2000
                         AND REGEXP_REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(t.args, '\\\\(?:["\\\\/bfnrt]|u[0-9a-fA-F]{4})', '~'), '"[^"\\\\\\x00-\\x1f]*"', '0'),
                                            '-?(?:0|[1-9][0-9]*+)(?:\\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false|null', '0') NOT REGEXP '[^\\]\\[{},:0 \\t\\n\\r]'))
               AND (t.h_id = 0 OR LEFT(CAST(t.j_id AS CHAR), 1) = '"' AND t.id REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z')
               AND (t.h_options = 0 OR LEFT(CAST(t.j_options AS CHAR), 1) = '{'
                    AND (t.h_queue = 0 OR LEFT(CAST(t.j_queue AS CHAR), 1) = '"' AND CHAR_LENGTH(t.queue) BETWEEN 1 AND 190)
                    AND (t.h_priority = 0 OR t.j_priority REGEXP '^-?[0-9]{1,4}\\z')
                    AND (t.h_max_attempts = 0 OR t.j_max_attempts REGEXP '^[1-9][0-9]{0,8}\\z')
                    AND (t.h_timeout_ms = 0 OR t.j_timeout_ms REGEXP '^[1-9][0-9]{0,12}\\z')
                    AND (t.h_delay_ms = 0 OR t.j_delay_ms REGEXP '^[0-9]{1,12}\\z')
                    AND (t.h_run_at = 0 OR t.h_delay_ms = 0 AND LEFT(CAST(t.j_run_at AS CHAR), 1) = '"' AND t.run_at REGEXP a_moment)
                    AND (t.h_unique_key = 0 OR LEFT(CAST(t.j_unique_key AS CHAR), 1) = '"' AND CHAR_LENGTH(t.unique_key) BETWEEN 1 AND 190
                                               AND t.unique_key NOT LIKE 'schedule:%' AND t.unique_key NOT LIKE 'batch:%')
                    AND (t.h_unique_for = 0 OR LEFT(CAST(t.j_unique_for AS CHAR), 1) = '"' AND t.unique_for IN ('active', 'row', 'ever') AND t.unique_key IS NOT NULL)
                    AND (t.h_tenant = 0 OR COALESCE(CAST(t.j_tenant AS CHAR), 'null') = 'null' OR LEFT(CAST(t.j_tenant AS CHAR), 1) = '"' AND CHAR_LENGTH(t.tenant) BETWEEN 1 AND 190
                                           AND (scope IS NULL OR t.tenant = scope))
                    AND (t.h_batch_id = 0 OR LEFT(CAST(t.j_batch_id AS CHAR), 1) = '"' AND t.batch_id REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z')
                    AND LOCATE(CHAR(0 USING utf8mb4), CONCAT_WS('', t.queue, t.unique_key, t.tenant)) = 0),
               FALSE)
      FROM JSON_TABLE(document, '$[*]' COLUMNS (
               n FOR ORDINALITY,
               h_name INT EXISTS PATH '$.name', j_name JSON PATH '$.name', name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.name',
               h_args INT EXISTS PATH '$.args', j_args JSON PATH '$.args', args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.args',
               h_id INT EXISTS PATH '$.id', j_id JSON PATH '$.id', id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.id',
               h_options INT EXISTS PATH '$.options', j_options JSON PATH '$.options',
               h_queue INT EXISTS PATH '$.options.queue', j_queue JSON PATH '$.options.queue', queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.options.queue',
               h_priority INT EXISTS PATH '$.options.priority', j_priority JSON PATH '$.options.priority',
               h_max_attempts INT EXISTS PATH '$.options.max_attempts', j_max_attempts JSON PATH '$.options.max_attempts',
               h_timeout_ms INT EXISTS PATH '$.options.timeout_ms', j_timeout_ms JSON PATH '$.options.timeout_ms',
               h_delay_ms INT EXISTS PATH '$.options.delay_ms', j_delay_ms JSON PATH '$.options.delay_ms',
               h_run_at INT EXISTS PATH '$.options.run_at', j_run_at JSON PATH '$.options.run_at', run_at LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.options.run_at',
               h_unique_key INT EXISTS PATH '$.options.unique_key', j_unique_key JSON PATH '$.options.unique_key', unique_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.options.unique_key',
               h_unique_for INT EXISTS PATH '$.options.unique_for', j_unique_for JSON PATH '$.options.unique_for', unique_for LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.options.unique_for',
               h_tenant INT EXISTS PATH '$.options.tenant', j_tenant JSON PATH '$.options.tenant', tenant LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.options.tenant',
               h_batch_id INT EXISTS PATH '$.options.batch_id', j_batch_id JSON PATH '$.options.batch_id', batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.options.batch_id',
               h_meta INT EXISTS PATH '$.options.meta')) AS t;
END//

-- Read one job as text: it is taken, or refused.
DROP PROCEDURE IF EXISTS jobs__read_odd//
CREATE PROCEDURE jobs__read_odd(number INT, element LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE members, place, name, args, options, queue, bound, path, state, unique_key, kept, tenant, meta, batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms BIGINT;
    DECLARE run_at DATETIME(6);
    DECLARE job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;

    SET place = CONCAT('jobs[', number - 1, ']');
    CALL jobs__members(element, place, 'name, args, options, id', members);
    SET place = CONCAT(place, '.');
    CALL jobs__text(members, 'name', place, name);
    CALL jobs__inner_args(members, CONCAT(place, 'args'), args);
    CALL jobs__json(members, 'options', options);
    CALL jobs__uuid(members, 'id', place, job);
    CALL jobs__draft(name, CONCAT(place, 'name'), options, place, scope,
                     'queue, priority, max_attempts, timeout_ms, run_at, delay_ms, unique_key, unique_for, tenant, batch_id, meta',
                     queue, priority, max_attempts, timeout_ms, bound, path, now, run_at, state, unique_key, kept, tenant, batch_id, meta);
    UPDATE jobs__incoming i
       SET i.id = COALESCE(job, i.id),
           i.name = name,
           i.args = args,
           i.queue = queue,
           i.priority = priority,
           i.max_attempts = max_attempts,
           i.timeout_ms = timeout_ms,
           i.run_at = run_at,
           i.unique_key = unique_key,
           i.kept = kept,
           i.tenant = tenant,
           i.batch_id = batch_id,
           i.meta = meta
     WHERE i.n = number;
END//

-- The same as jobs__split for a long list of objects, on which MySQL's regular expressions give up. Cut at its quotes it is by turns what
-- stands outside of texts and what stands in them, and an object begins where the depth outside comes back to one with a bracket at the end.
DROP PROCEDURE IF EXISTS jobs__split_long//
CREATE PROCEDURE jobs__split_long(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT pieces LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE hidden LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

    SET hidden = REPLACE(REPLACE(document, '\\\\', CHAR(2, 2 USING utf8mb4)), '\\"', CHAR(3, 3 USING utf8mb4));
    SET hidden = CONCAT('[', REPLACE(JSON_QUOTE(hidden), '\\"', '","'), ']');
    SELECT GROUP_CONCAT(CASE WHEN p.n % 2 = 1 AND p.depth = 2 AND p.piece REGEXP ',[ \\t\\n\\r]*+\\{[ \\t\\n\\r]*+\\z'
                             THEN CONCAT(LEFT(p.piece, CHAR_LENGTH(p.piece) - LOCATE(',', REVERSE(p.piece))), CHAR(1 USING utf8mb4), SUBSTRING_INDEX(p.piece, ',', -1))
                             ELSE p.piece END
                        ORDER BY p.n SEPARATOR '"')
      INTO pieces
      FROM (SELECT t.n, t.piece,
                   SUM(CASE WHEN t.n % 2 = 1 THEN CAST(LENGTH(REPLACE(REPLACE(t.piece, ']', ''), '}', '')) AS SIGNED)
                                                  - CAST(LENGTH(REPLACE(REPLACE(t.piece, '[', ''), '{', '')) AS SIGNED) END)
                   OVER (ORDER BY t.n ROWS UNBOUNDED PRECEDING) AS depth
              FROM JSON_TABLE(hidden, '$[*]' COLUMNS (n FOR ORDINALITY, piece LONGTEXT CHARACTER SET utf8mb4 PATH '$')) AS t) AS p;
    SET pieces = SUBSTRING(pieces, LOCATE('[', pieces) + 1);
    CALL jobs__trim_end(pieces);
    SET pieces = REPLACE(REPLACE(LEFT(pieces, CHAR_LENGTH(pieces) - 1), CHAR(3, 3 USING utf8mb4), '\\"'), CHAR(2, 2 USING utf8mb4), '\\\\');
END//

-- The text of each job. Pieces are put down as JSON texts, in which the engine then counts them.
DROP PROCEDURE IF EXISTS jobs__read_pieces//
CREATE PROCEDURE jobs__read_pieces(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE pieces LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    IF VERSION() LIKE '%MariaDB%' THEN
        CALL jobs__split(document, pieces);
        CALL jobs__replace_all(pieces, '(["\\\\])', '\\\\\\1');
        CALL jobs__replace_all(pieces, '\\t', '\\\\t');
        CALL jobs__replace_all(pieces, '\\n', '\\\\n');
        CALL jobs__replace_all(pieces, '\\r', '\\\\r');
        CALL jobs__replace_all(pieces, '\\x01', '","');
    ELSE
        IF LENGTH(document) < 50000 THEN
            CALL jobs__split(document, pieces);
        ELSE
            CALL jobs__split_long(document, pieces);
        END IF;
        SET pieces = REPLACE(REPLACE(pieces, '\\', '\\\\'), '"', '\\"');
        SET pieces = REPLACE(REPLACE(REPLACE(REPLACE(pieces, '\t', '\\t'), '\n', '\\n'), '\r', '\\r'), CHAR(1 USING utf8mb4), '","');
    END IF;
    IF pieces <> '' THEN
        INSERT INTO jobs__incoming (n, piece, odd)
        SELECT t.n, t.piece, TRUE
          FROM JSON_TABLE(CONCAT('["', pieces, '"]'), '$[*]' COLUMNS (n FOR ORDINALITY, piece LONGTEXT CHARACTER SET utf8mb4 PATH '$')) AS t
            ON DUPLICATE KEY UPDATE piece = VALUES(piece);
    END IF;
END//

-- Read meta, which the engine would write anew, where it stands plainly; and find out which jobs are odd for what the engine does not know
-- of them. Every key is followed by a colon: where there are more of them than members that it knows of, a key is unknown or is
-- there twice. (A text that begins with a colon counts too, and costs no more than a closer look.)
DROP PROCEDURE IF EXISTS jobs__read_metas//
CREATE PROCEDURE jobs__read_metas()
SQL SECURITY DEFINER
BEGIN
    UPDATE jobs__incoming i
       SET i.meta = COALESCE(REGEXP_SUBSTR(i.piece, '"meta"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+\\{(?:[^"{}]++|"(?:[^"\\\\]++|\\\\.)*+"|\\{(?:[^"{}]++|"(?:[^"\\\\]++|\\\\.)*+")*+\\})*+\\}'), '')
     WHERE i.meta = '';
    UPDATE jobs__incoming i
       SET i.meta = SUBSTRING(i.meta, LOCATE('{', i.meta)),
           i.odd = i.odd OR i.meta = '' OR LENGTH(i.meta) > 16384 OR LENGTH(i.piece) - LENGTH(REPLACE(i.piece, '"meta"', '')) <> 6
     WHERE i.meta IS NOT NULL;
    UPDATE jobs__incoming i
       SET i.odd = TRUE
     WHERE i.known <> (LENGTH(i.piece) - LENGTH(REPLACE(REPLACE(REPLACE(i.piece, '\\\\', '..'), '\\"', '..'), '":', '')) - COALESCE(LENGTH(i.meta), 0)
                       + COALESCE(LENGTH(REPLACE(REPLACE(REPLACE(i.meta, '\\\\', '..'), '\\"', '..'), '":', '')), 0)) / 2;
END//

-- Read those that are odd, in their order.
DROP PROCEDURE IF EXISTS jobs__read_odds//
CREATE PROCEDURE jobs__read_odds(scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE number INT;
    DECLARE piece LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE odds CURSOR FOR SELECT i.n, i.piece FROM jobs__incoming i WHERE i.odd ORDER BY i.n;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
    DECLARE EXIT HANDLER FOR 3698, 3699  -- MySQL gives up
    BEGIN
        SELECT i.args INTO piece FROM jobs__incoming i WHERE i.n = number;  -- if the engine could tell them
        CALL jobs__args(piece, CONCAT('jobs[', number - 1, '].args'));
        CALL jobs__refuse('PJ003', CONCAT('jobs[', number - 1, '] is too long to be read as text, as args that are objects must be'), 'send args as a string');
    END;
    OPEN odds;
    FETCH odds INTO number, piece;
    WHILE NOT ended DO
        CALL jobs__read_odd(number, piece, scope, now);
        SET ended = FALSE;
        FETCH odds INTO number, piece;
    END WHILE;
    CLOSE odds;
END//

-- Read the jobs, or refuse the first that cannot be taken.
DROP PROCEDURE IF EXISTS jobs__read_jobs//
CREATE PROCEDURE jobs__read_jobs(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, scope LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE hidden, prefix LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE members, odds, first INT DEFAULT 0;
    DECLARE valid BOOLEAN;
    DECLARE unknown VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

    CALL jobs__is_json(document, valid);
    IF NOT valid THEN
        CALL jobs__refuse('PJ002', 'the jobs, or the args of one of them, are not JSON', 'pass a JSON array of {"name", "args", "options", "id"}');
    ELSEIF document NOT REGEXP '^[ \\t\\n\\r]*+\\[' THEN
        CALL jobs__refuse('PJ003', 'jobs is not a JSON array', 'pass an array of {"name", "args", "options", "id"}');
    END IF;

    CALL jobs__make_room();
    IF JSON_VALID(document) THEN
        CALL jobs__read_plain(document, scope, now);
        SET hidden = REPLACE(REPLACE(document, '\\\\', '..'), '\\"', '..');
        SELECT COALESCE(SUM(i.known), 0), COALESCE(SUM(i.odd OR i.meta IS NOT NULL), 0) INTO members, odds FROM jobs__incoming i;
        IF odds > 0 OR members <> (LENGTH(hidden) - LENGTH(REPLACE(hidden, '":', ''))) / 2 THEN
            CALL jobs__read_pieces(document);
            CALL jobs__read_metas();
            CALL jobs__read_odds(scope, now);
        END IF;
    ELSE
        CALL jobs__read_pieces(document);
        CALL jobs__id_prefix(prefix);
        UPDATE jobs__incoming i
           SET i.id = CONCAT(prefix, '-', LOWER(LEFT(HEX(8388608 + i.n), 4)), '-', LOWER(RIGHT(HEX(8388608 + i.n), 2)), LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 10));
        CALL jobs__read_odds(scope, now);
    END IF;

    SELECT MIN(i.n) INTO first
      FROM jobs__incoming i
      LEFT JOIN jobs_definitions d ON d.name = i.name
     WHERE d.name IS NULL;
    IF first IS NOT NULL THEN
        SELECT i.name INTO unknown FROM jobs__incoming i WHERE i.n = first;
        CALL jobs__refuse_undefined(unknown, CONCAT('jobs[', first - 1, '].name'));
    END IF;
END//

-- The definitions that the jobs have, read without a lock, which INSERT … SELECT would take.
DROP PROCEDURE IF EXISTS jobs__definitions_met//
CREATE PROCEDURE jobs__definitions_met(OUT met LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE one LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE definitions CURSOR FOR
        SELECT JSON_OBJECT('name', d.name, 'queue', d.queue, 'priority', d.priority, 'max_attempts', d.max_attempts, 'timeout_ms', d.timeout_ms,
                           'bound', d.concurrency_group, 'path', d.concurrency_key)
          FROM jobs_definitions d
         WHERE EXISTS (SELECT 1 FROM jobs__incoming i WHERE i.name = d.name);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
    SET met = '';
    OPEN definitions;
    FETCH definitions INTO one;
    WHILE NOT ended DO
        SET met = CONCAT(met, ',', one);
        FETCH definitions INTO one;
    END WHILE;
    CLOSE definitions;
    SET met = CONCAT('[', SUBSTRING(met, 2), ']');
END//

-- Give the jobs their buckets: set-wise where args are flat and plain, one by one where they are not.
DROP PROCEDURE IF EXISTS jobs__assign_buckets//
CREATE PROCEDURE jobs__assign_buckets(definitions LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE number INT;
    DECLARE bound, path VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE given LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE bucket VARBINARY(2284);
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE limited CURSOR FOR
        SELECT i.n, d.bound, d.path, i.args
          FROM jobs__incoming i
          JOIN JSON_TABLE(definitions, '$[*]' COLUMNS (
                   name VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.name', bound VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bound',
                   path VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.path')) AS d ON d.name COLLATE utf8mb4_bin = i.name
         WHERE d.bound IS NOT NULL
           AND i.bucket IS NULL;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    UPDATE jobs__incoming i
      JOIN JSON_TABLE(definitions, '$[*]' COLUMNS (
               name VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.name', bound VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.bound',
               path VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.path')) AS d ON d.name COLLATE utf8mb4_bin = i.name
       SET i.bucket = CASE WHEN d.path IS NULL THEN d.bound
                           WHEN REGEXP_SUBSTR(i.args, CONCAT('"', d.path, '"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+"[^"]{0,380}"')) <> ''
                           THEN CONCAT(d.bound, ':', SUBSTRING_INDEX(SUBSTRING_INDEX(REGEXP_SUBSTR(i.args, CONCAT('"', d.path, '"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+"[^"]{0,380}"')), '"', -2), '"', 1))
                           WHEN REGEXP_SUBSTR(i.args, CONCAT('"', d.path, '"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+[-+.0-9a-zE]{1,380}(?=[,} \\t\\n\\r])')) <> ''
                           THEN CONCAT(d.bound, ':', REGEXP_SUBSTR(REGEXP_SUBSTR(i.args, CONCAT('"', d.path, '"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+[-+.0-9a-zE]{1,380}(?=[,} \\t\\n\\r])')), '[-+.0-9a-zE]++\\z')) END
     WHERE d.bound IS NOT NULL
       AND (d.path IS NULL
            OR d.path REGEXP '^[A-Za-z0-9_-]++\\z'
               AND i.args REGEXP '^[^\\\\\\[{]*\\{[^\\\\\\[{]*\\z'
               AND LENGTH(i.args) - LENGTH(REPLACE(i.args, CONCAT('"', d.path, '"'), '')) = LENGTH(d.path) + 2);

    OPEN limited;
    FETCH limited INTO number, bound, path, given;
    WHILE NOT ended DO
        CALL jobs__bucket(bound, path, given, bucket);
        UPDATE jobs__incoming i SET i.bucket = bucket WHERE i.n = number;
        FETCH limited INTO number, bound, path, given;
    END WHILE;
    CLOSE limited;
END//

-- Of jobs that have keys or whose ids are there already: which go in, and what the others are answered. Each turn decides on the first of
-- each id; one whose key is held leaves its place to the next of that id.
DROP PROCEDURE IF EXISTS jobs__choose_incoming//
CREATE PROCEDURE jobs__choose_incoming(now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE number INT;
    DECLARE job, holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE unique_key VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE kept VARCHAR(12) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE numbers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE keyed CURSOR FOR
        SELECT i.n, i.id, i.unique_key, i.kept
          FROM jobs__incoming i
         WHERE i.enters
           AND i.answer IS NULL
           AND i.unique_key IS NOT NULL
         ORDER BY CAST(i.unique_key AS BINARY), i.n;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    SELECT JSON_ARRAYAGG(i.n) INTO numbers FROM jobs__incoming i STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = i.id;
    UPDATE jobs__incoming i
      JOIN JSON_TABLE(numbers, '$[*]' COLUMNS (n INT PATH '$')) AS p ON p.n = i.n
       SET i.enters = FALSE, i.answer = i.id;
    UPDATE jobs__incoming i SET i.enters = FALSE;

    turns: LOOP
        SELECT JSON_ARRAYAGG(f.n) INTO numbers
          FROM (SELECT MIN(i.n) AS n FROM jobs__incoming i WHERE i.answer IS NULL GROUP BY i.id) AS f;
        IF numbers IS NULL THEN
            LEAVE turns;
        END IF;
        UPDATE jobs__incoming i
          JOIN JSON_TABLE(numbers, '$[*]' COLUMNS (n INT PATH '$')) AS p ON p.n = i.n
           SET i.enters = TRUE;

        SET ended = FALSE;
        OPEN keyed;
        FETCH keyed INTO number, job, unique_key, kept;
        WHILE NOT ended DO
            CALL jobs__take_key(unique_key, job, kept, now, holder);
            UPDATE jobs__incoming i SET i.answer = holder, i.enters = (holder = job) WHERE i.n = number;
            SET ended = FALSE;
            FETCH keyed INTO number, job, unique_key, kept;
        END WHILE;
        CLOSE keyed;
        UPDATE jobs__incoming i SET i.answer = i.id WHERE i.enters AND i.answer IS NULL;

        SELECT JSON_ARRAYAGG(o.n) INTO numbers
          FROM (SELECT i.n, i.answer, MAX(i.enters) OVER (PARTITION BY i.id) AS entered FROM jobs__incoming i) AS o
         WHERE o.answer IS NULL
           AND o.entered;
        UPDATE jobs__incoming i
          JOIN JSON_TABLE(numbers, '$[*]' COLUMNS (n INT PATH '$')) AS p ON p.n = i.n
           SET i.answer = i.id;
    END LOOP;
END//

-- Count the jobs in at the doors of their batches, in the order of these.
DROP PROCEDURE IF EXISTS jobs__join_batches//
CREATE PROCEDURE jobs__join_batches()
SQL SECURITY DEFINER
BEGIN
    DECLARE batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE number INT;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE batches CURSOR FOR
        SELECT i.batch_id, COUNT(*) FROM jobs__incoming i WHERE i.enters AND i.batch_id IS NOT NULL GROUP BY i.batch_id ORDER BY i.batch_id;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
    OPEN batches;
    FETCH batches INTO batch, number;
    WHILE NOT ended DO
        CALL jobs__join_batch(batch, number);
        SET ended = FALSE;
        FETCH batches INTO batch, number;
    END WHILE;
    CLOSE batches;
END//

DROP PROCEDURE IF EXISTS jobs__insert_incoming//
CREATE PROCEDURE jobs__insert_incoming(definitions LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6), OUT repeated BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE CONTINUE HANDLER FOR 1062 SET repeated = TRUE;
    SET repeated = FALSE;
    INSERT INTO jobs (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, tenant, batch_id, enqueued_at, args, meta)
    SELECT i.id, i.name, COALESCE(i.queue, d.queue), IF(i.run_at > now, 'scheduled', 'pending'), COALESCE(i.priority, d.priority), i.run_at, i.bucket,
           COALESCE(i.max_attempts, d.max_attempts), COALESCE(i.timeout_ms, d.timeout_ms), i.unique_key, i.tenant, i.batch_id, now, i.args, i.meta
      FROM jobs__incoming i
      JOIN JSON_TABLE(definitions, '$[*]' COLUMNS (
               name VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.name', queue VARCHAR(190) CHARACTER SET utf8mb4 PATH '$.queue', priority INT PATH '$.priority',
               max_attempts INT PATH '$.max_attempts', timeout_ms BIGINT PATH '$.timeout_ms')) AS d ON d.name COLLATE utf8mb4_bin = i.name
     WHERE i.enters
     ORDER BY i.n;
END//

-- Whether the jobs are what most are: of one name without a limit, with plain args and maybe an id, and nothing else. Then they go straight
-- into the table, in one statement, which is whole or not at all; where they are not, or an id is there already, nothing has been done. An id that is
-- made here is that of its number in the call. (In a transaction of the caller's no insert may meet an id that is there or comes twice: it would lock
-- that job, and MySQL, which keeps the locks of what it takes back, the gaps around the others, up to the end of all indexes.)
DROP PROCEDURE IF EXISTS jobs__insert_bare//
CREATE PROCEDURE jobs__insert_bare(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, scope VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, now DATETIME(6), prefix CHAR(18) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, finish CHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, alone BOOLEAN, OUT done BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE most, name, other, hidden, queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE odd, known, defined, given, different INT DEFAULT 0;
    DECLARE priority, max_attempts, timeout_ms BIGINT;
    DECLARE lax BOOLEAN DEFAULT VERSION() LIKE '%MariaDB%';
    DECLARE CONTINUE HANDLER FOR 1062 SET done = FALSE;

    SET done = FALSE;
    CALL jobs__setting('max_args_bytes', most);
    SELECT MIN(t.name), MAX(t.name), SUM(t.h_name + t.h_args + t.h_id), COUNT(t.id), COUNT(DISTINCT IF(alone, NULL, LOWER(t.id))),
           SUM(NOT COALESCE(
               LEFT(CAST(t.j_name AS CHAR), 1) = '"' AND CHAR_LENGTH(t.name) BETWEEN 1 AND 190
               AND (t.h_args = 0 OR LEFT(CAST(t.j_args AS CHAR), 1) = '"' AND LENGTH(t.args) <= most AND JSON_VALID(t.args)
                    AND (NOT lax OR LENGTH(t.args) < 2000
                         AND REGEXP_REPLACE(REGEXP_REPLACE(REGEXP_REPLACE(t.args, '\\\\(?:["\\\\/bfnrt]|u[0-9a-fA-F]{4})', '~'), '"[^"\\\\\\x00-\\x1f]*"', '0'),
                                            '-?(?:0|[1-9][0-9]*+)(?:\\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false|null', '0') NOT REGEXP '[^\\]\\[{},:0 \\t\\n\\r]'))
               AND (t.h_id = 0 OR LEFT(CAST(t.j_id AS CHAR), 1) = '"' AND t.id REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z'
                    AND (alone OR NOT EXISTS (SELECT 1 FROM jobs j FORCE INDEX (PRIMARY) WHERE j.id = CONVERT(LOWER(t.id) USING ascii) COLLATE ascii_bin))),
               FALSE))
      INTO name, other, known, given, different, odd
      FROM JSON_TABLE(document, '$[*]' COLUMNS (
               h_name INT EXISTS PATH '$.name', j_name JSON PATH '$.name', name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.name',
               h_args INT EXISTS PATH '$.args', j_args JSON PATH '$.args', args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.args',
               h_id INT EXISTS PATH '$.id', j_id JSON PATH '$.id', id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.id')) AS t;
    -- Every key is followed by a colon: as in jobs__read_jobs.
    SET hidden = REPLACE(REPLACE(document, '\\\\', '..'), '\\"', '..');
    -- Of texts MariaDB takes for JSON what holds a control character, or an escape that there is not.
    IF lax AND (document REGEXP '[\\x00-\\x1f]' OR hidden REGEXP '\\\\(?![/bfnrt]|u[0-9a-fA-F]{4})') THEN
        SET odd = NULL;
    END IF;
    IF odd = 0 AND name = other AND (alone OR given = different) AND known = (LENGTH(hidden) - LENGTH(REPLACE(hidden, '":', ''))) / 2 THEN
        SELECT 1, d.queue, d.priority, d.max_attempts, d.timeout_ms INTO defined, queue, priority, max_attempts, timeout_ms
          FROM jobs_definitions d
         WHERE d.name = name
           AND d.concurrency_group IS NULL;
    END IF;
    IF defined THEN
        SET done = TRUE;
        INSERT INTO jobs (id, name, queue, state, priority, run_at, max_attempts, timeout_ms, tenant, enqueued_at, args)
        SELECT COALESCE(LOWER(t.id), CONCAT(prefix, '-', LOWER(LEFT(HEX(8388608 + t.n), 4)), '-', LOWER(RIGHT(HEX(8388608 + t.n), 2)), finish)), name, queue, 'pending', priority, now, max_attempts, timeout_ms, scope, now,
               COALESCE(t.args, '{}')
          FROM JSON_TABLE(document, '$[*]' COLUMNS (
                   n FOR ORDINALITY, id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.id', args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.args')) AS t;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_enqueue_many//
CREATE PROCEDURE jobs_enqueue_many(jobs LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
many: BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE scope, definitions LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE prefix CHAR(18) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE finish CHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE moment DATETIME(6);
    DECLARE bounds, special INT;
    DECLARE alone, done, repeated BOOLEAN;

    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            CALL jobs__undo(alone);
            DROP TEMPORARY TABLE IF EXISTS jobs__incoming;
            CALL jobs__put_back(settings);
            RESIGNAL;
        END;
        CALL jobs__set_aside(settings);
        CALL jobs__scope(scope);
        SELECT c.now INTO moment FROM jobs_clock c;
        IF LOCATE('"options"', jobs) = 0 AND JSON_VALID(jobs) THEN
            CALL jobs__id_prefix(prefix);
            SET finish = LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 10);
            CALL jobs__begin(alone);
            CALL jobs__insert_bare(jobs, scope, moment, prefix, finish, alone, done);
            CALL jobs__end(alone);
        END IF;
        IF done THEN
            CALL jobs__put_back(settings);
            SELECT t.n - 1 AS `position`,
                   COALESCE(LOWER(t.id), CONCAT(prefix, '-', LOWER(LEFT(HEX(8388608 + t.n), 4)), '-', LOWER(RIGHT(HEX(8388608 + t.n), 2)), finish)) AS id, 1 AS inserted
              FROM JSON_TABLE(jobs, '$[*]' COLUMNS (n FOR ORDINALITY, id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$.id')) AS t
             ORDER BY t.n;
            LEAVE many;
        END IF;
        CALL jobs__begin(alone);
        CALL jobs__read_jobs(jobs, scope, moment);
        CALL jobs__definitions_met(definitions);
        SELECT COUNT(*) INTO bounds FROM jobs_definitions d WHERE d.concurrency_group IS NOT NULL;
        IF bounds > 0 THEN
            CALL jobs__assign_buckets(definitions);
        END IF;

        SELECT COUNT(i.unique_key) + COUNT(i.batch_id) + COUNT(j.id) + COUNT(*) - COUNT(DISTINCT i.id) INTO special
          FROM jobs__incoming i
          LEFT JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = i.id;
        SET repeated = special > 0;
        IF NOT repeated THEN
            CALL jobs__insert_incoming(definitions, moment, repeated);
        END IF;
        IF repeated THEN
            CALL jobs__choose_incoming(moment);
            CALL jobs__join_batches();
            CALL jobs__insert_incoming(definitions, moment, repeated);
            IF repeated THEN  -- an id went in elsewhere at this very moment: it will be found when the call is made again
                SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a job of the same id was enqueued elsewhere meanwhile; try again';
            END IF;
        END IF;
        CALL jobs__end(alone);
        CALL jobs__put_back(settings);
    END;
    SELECT i.n - 1 AS `position`, COALESCE(i.answer, i.id) AS id, i.enters AS inserted FROM jobs__incoming i ORDER BY i.n;
    DROP TEMPORARY TABLE jobs__incoming;
END//
