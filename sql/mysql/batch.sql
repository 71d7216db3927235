-- jobs_open_batch, jobs_seal_batch, jobs_advance_batch: jobs that are counted together, and a callback after the last.
--
-- What goes in is counted at the door (jobs__doors), what ends in the batch itself, each under its row's lock: so whoever enqueues, in a
-- transaction however long, keeps nobody from ending jobs. Sealing shuts the door, which waits for enqueuers, and takes its number for the total;
-- it reads no jobs, so that no snapshot can lack one. Whoever finds `done` equal to `total` finishes the batch and puts the
-- callback in, in the same transaction. `finished_at IS NULL` under the lock is what makes that once.
--
-- The callback goes in by itself, not through jobs_enqueue: whatever has become of its definition since the batch was
-- opened, it cannot make the outcome of somebody else's job fail.

DELIMITER //

-- Finish a batch that is locked here.
DROP PROCEDURE IF EXISTS jobs__finish_batch//
CREATE PROCEDURE jobs__finish_batch(batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE callback, callback_args, callback_options, queue, bound, path, state, unique_key, kept, tenant, batch_tenant, meta, batch_id, counts LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms BIGINT;
    DECLARE run_at DATETIME(6);
    DECLARE bucket VARBINARY(2284);
    DECLARE job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE inserted BOOLEAN;

    SELECT b.callback, b.callback_args, b.callback_options, b.tenant,
           CONCAT('{"batch": {"id": "', CONVERT(b.id USING utf8mb4), '", "name": ', COALESCE(JSON_QUOTE(b.name), 'null'), ', "total": ', b.total, ', "done": ', b.done,
                  ', "failed": ', b.failed, ', "succeeded": ', b.done - b.failed, '}}')
      INTO callback, callback_args, callback_options, batch_tenant, counts
      FROM jobs_batches b
     WHERE b.id = batch
       FOR UPDATE;
    IF callback IS NOT NULL THEN
        CALL jobs__draft(callback, NULL, callback_options, 'callback.options.', NULL, 'queue, priority, max_attempts, timeout_ms, run_at, delay_ms, tenant, meta',
                         queue, priority, max_attempts, timeout_ms, bound, path, now, run_at, state, unique_key, kept, tenant, batch_id, meta);
        CALL jobs__bucket(bound, path, callback_args, bucket);
        CALL jobs__new_id(job);
        -- The counts are the last member of meta, so that they are what counts.
        IF meta IS NOT NULL AND meta NOT REGEXP '^\\{[ \\t\\n\\r]*\\}$' THEN
            SET counts = CONCAT(LEFT(meta, CHAR_LENGTH(meta) - 1), ', ', SUBSTRING(counts, 2));
        END IF;
        CALL jobs__insert(job, callback, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, NULL, batch_tenant, NULL, now, callback_args, counts, inserted);
    END IF;
    UPDATE jobs_batches b SET b.finished_at = now, b.callback_id = job WHERE b.id = batch;
END//

-- Finish a batch that is locked here, if all its jobs have ended.
DROP PROCEDURE IF EXISTS jobs__finish_if_done//
CREATE PROCEDURE jobs__finish_if_done(batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE due INT DEFAULT 0;
    SELECT b.done = b.total AND b.finished_at IS NULL INTO due FROM jobs_batches b WHERE b.id = batch FOR UPDATE;
    IF due THEN
        CALL jobs__finish_batch(batch, now);
    END IF;
END//

-- Count jobs that ended into their batches (direction = 1), or out of them again as they are put back (direction = -1). `counted` is a JSON array
-- of {id, done, failed}. Batches are taken in the order of their ids.
DROP PROCEDURE IF EXISTS jobs__tally//
CREATE PROCEDURE jobs__tally(counted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, direction INT, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE number, number_failed INT;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE batches CURSOR FOR
        SELECT t.id, t.done, t.failed
          FROM JSON_TABLE(counted, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', done INT PATH '$.done', failed INT PATH '$.failed')) AS t
         ORDER BY t.id;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    OPEN batches;
    FETCH batches INTO batch, number, number_failed;
    WHILE NOT ended DO
        UPDATE jobs_batches b
           SET b.done = b.done + direction * number,
               b.failed = b.failed + direction * number_failed
         WHERE b.id = batch;
        CALL jobs__finish_if_done(batch, now);
        SET ended = FALSE;  -- one that is gone was not found either
        FETCH batches INTO batch, number, number_failed;
    END WHILE;
    CLOSE batches;
END//

-- Refuses a batch that is not there.
DROP PROCEDURE IF EXISTS jobs__refuse_absent//
CREATE PROCEDURE jobs__refuse_absent(batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, present INT)
SQL SECURITY DEFINER
BEGIN
    IF NOT present THEN
        CALL jobs__refuse('PJ005', CONCAT('there is no batch ', COALESCE(batch, 'without an id')), 'open it first with jobs_open_batch; a finished one is pruned after a day');
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_open_batch//
CREATE PROCEDURE jobs_open_batch(options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE scope, members, part, name, tenant, id_given LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE callback, callback_args, callback_options, queue, bound, path, state, unique_key, kept, other_tenant, batch_id, meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms BIGINT;
    DECLARE moment, run_at DATETIME(6);
    DECLARE id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE present INT DEFAULT 0;
    DECLARE alone BOOLEAN;

    CALL jobs__scope(scope);
    CALL jobs__members(options, 'options', 'name, callback, id, tenant', members);
    CALL jobs__name(members, 'name', '', name);
    CALL jobs__uuid(members, 'id', '', id);
    SET tenant = scope;
    IF JSON_CONTAINS_PATH(members, 'one', '$.tenant') THEN
        CALL jobs__name(members, 'tenant', '', tenant);
        IF tenant <> scope THEN
            CALL jobs__refuse('PJ009', CONCAT('tenant is ', JSON_QUOTE(tenant), ' while ', JSON_QUOTE(scope), ' is in scope'),
                              'leave the scope first: SET @pyjobs_tenant = NULL');
        END IF;
    END IF;

    CALL jobs__json(members, 'callback', part);
    IF part IS NOT NULL THEN
        CALL jobs__members(part, 'callback', 'name, args, options', part);
        CALL jobs__text(part, 'name', 'callback.', callback);
        CALL jobs__inner_args(part, 'callback.args', callback_args);
        CALL jobs__object(part, 'options', 'callback.', callback_options);
        SET callback_options = COALESCE(callback_options, '{}');
        IF callback IS NULL THEN
            CALL jobs__refuse('PJ003', 'callback.name is missing', 'name the job that is to run after the batch');
        END IF;
        CALL jobs__draft(callback, 'callback.name', callback_options, 'callback.options.', scope,
                         'queue, priority, max_attempts, timeout_ms, run_at, delay_ms, tenant, meta',
                         queue, priority, max_attempts, timeout_ms, bound, path, moment, run_at, state, unique_key, kept, other_tenant, batch_id, meta);
    END IF;

    IF id IS NULL THEN
        CALL jobs__new_id(id);
    END IF;
    SELECT COUNT(*) INTO present FROM jobs_batches b WHERE b.id = id;
    IF NOT present THEN
        BEGIN
            DECLARE EXIT HANDLER FOR SQLEXCEPTION
            BEGIN
                CALL jobs__undo(alone);
                RESIGNAL;
            END;
            DECLARE CONTINUE HANDLER FOR 1062 BEGIN END;  -- opened elsewhere meanwhile
            SELECT c.now INTO moment FROM jobs_clock c;
            CALL jobs__begin(alone);
            INSERT INTO jobs_batches (id, name, tenant, callback, callback_args, callback_options, opened_at)
            VALUES (id, name, tenant, callback, callback_args, callback_options, moment);
            INSERT INTO jobs__doors (batch_id) VALUES (id);
            CALL jobs__end(alone);
        END;
    END IF;
    SELECT id;
END//

-- What callers are told of a batch.
DROP PROCEDURE IF EXISTS jobs__answer_batch//
CREATE PROCEDURE jobs__answer_batch(batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    SELECT b.id, b.name, b.tenant, b.callback, b.callback_id, b.total, b.done, b.failed, b.opened_at, b.sealed_at, b.finished_at
      FROM jobs_batches b
     WHERE b.id = batch;
END//

DROP PROCEDURE IF EXISTS jobs_seal_batch//
CREATE PROCEDURE jobs_seal_batch(batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE moment DATETIME(6);
    DECLARE number INT;
    DECLARE was_shut, alone BOOLEAN;

    CALL jobs__as_uuid(batch_id, 'batch_id', batch);
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            CALL jobs__undo(alone);
            RESIGNAL;
        END;
        SELECT c.now INTO moment FROM jobs_clock c;
        CALL jobs__begin(alone);
        SELECT d.joined, d.shut INTO number, was_shut FROM jobs__doors d WHERE d.batch_id = batch FOR UPDATE;
        CALL jobs__refuse_absent(batch, number IS NOT NULL);
        IF NOT was_shut THEN
            UPDATE jobs__doors d SET d.shut = TRUE WHERE d.batch_id = batch;
            UPDATE jobs_batches b SET b.sealed_at = moment, b.total = number WHERE b.id = batch;
            CALL jobs__finish_if_done(batch, moment);
        END IF;
        CALL jobs__end(alone);
    END;
    CALL jobs__answer_batch(batch);
END//

DROP PROCEDURE IF EXISTS jobs_advance_batch//
CREATE PROCEDURE jobs_advance_batch(batch_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE batch CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE moment DATETIME(6);
    DECLARE present INT DEFAULT 0;

    CALL jobs__as_uuid(batch_id, 'batch_id', batch);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        SELECT c.now INTO moment FROM jobs_clock c;
        SELECT COUNT(*) INTO present FROM jobs_batches b WHERE b.id = batch FOR UPDATE;
        CALL jobs__refuse_absent(batch, present);
        CALL jobs__finish_if_done(batch, moment);
        CALL jobs__answer_batch(batch);
        COMMIT;
    END;
END//
