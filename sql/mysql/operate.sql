-- jobs_retry, jobs_cancel, jobs_discard: put back, call off, delete. jobs_pause_queue, jobs_resume_queue, jobs_set.
--
-- All three choose their jobs by a filter: they are read without locking, and then locked by their ids, in order, and tested again, waiting
-- where need be: what is in somebody's hands for a moment is not passed over, and what does not match holds nobody up. They
-- take some thousand at a time, so that no list outgrows what the engine can hold in one value; one transaction all the same. Batches are
-- counted after the last, since their locks come after those of jobs.

DELIMITER //

-- What a filter asks for, as one object of all its keys; `named` is the id, where it names one.
DROP PROCEDURE IF EXISTS jobs__read_filter//
CREATE PROCEDURE jobs__read_filter(filter LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE members, list, pieces, piece, state, queue, name, tenant, dead_reason LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE batch_id, id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE moment DATETIME(6);
    DECLARE most BIGINT;
    DECLARE ids LONGTEXT CHARACTER SET ascii;
    DECLARE any_tenant BOOLEAN;
    CALL jobs__members(filter, 'filter', 'id, ids, state, queue, name, tenant, batch_id, dead_reason, before, limit', members);
    CALL jobs__uuid(members, 'id', 'filter.', named);
    CALL jobs__texts(members, 'ids', 'filter.', list);
    CALL jobs__text(members, 'state', 'filter.', state);
    CALL jobs__text(members, 'queue', 'filter.', queue);
    CALL jobs__text(members, 'name', 'filter.', name);
    CALL jobs__text(members, 'tenant', 'filter.', tenant);
    CALL jobs__uuid(members, 'batch_id', 'filter.', batch_id);
    CALL jobs__text(members, 'dead_reason', 'filter.', dead_reason);
    CALL jobs__moment(members, 'before', 'filter.', moment);
    CALL jobs__integer(members, 'limit', 'filter.', 0, 2147483647, most);
    SET any_tenant = NOT JSON_CONTAINS_PATH(members, 'one', '$.tenant');
    IF list IS NOT NULL THEN
        SET ids = '';
        CALL jobs__split(list, pieces);
        WHILE pieces <> '' DO
            CALL jobs__next_piece(pieces, piece);
            CALL jobs__as_uuid(JSON_UNQUOTE(piece), 'filter.ids', id);
            SET ids = CONCAT(ids, ',"', id, '"');
        END WHILE;
        SET ids = CONCAT('[', SUBSTRING(ids, 2), ']');
    END IF;

    IF COALESCE(named, ids, batch_id) IS NULL AND moment IS NULL AND COALESCE(state, queue, name, dead_reason) IS NULL AND any_tenant THEN
        CALL jobs__refuse('PJ003', 'the filter has no key', 'say which jobs are meant, such as {"state": "dead"}');
    ELSEIF state NOT IN ('scheduled', 'pending', 'running', 'done', 'dead', 'cancelled') THEN
        CALL jobs__refuse('PJ003', CONCAT('filter.state is ', JSON_QUOTE(LEFT(state, 40))), 'the states are scheduled, pending, running, done, dead and cancelled');
    ELSEIF dead_reason NOT IN ('exhausted', 'permanent', 'invalid_args', 'unknown_name', 'lost') THEN
        CALL jobs__refuse('PJ003', CONCAT('filter.dead_reason is ', JSON_QUOTE(LEFT(dead_reason, 40))),
                          'the reasons are exhausted, permanent, invalid_args, unknown_name and lost');
    END IF;
    SET wanted = JSON_OBJECT('ids', COALESCE(CONCAT('["', named, '"]'), ids), 'state', state, 'queue', queue, 'name', name, 'tenant', tenant, 'any_tenant', any_tenant,
                             'batch_id', batch_id, 'dead_reason', dead_reason, 'before', CAST(moment AS CHAR CHARACTER SET ascii), 'limit', COALESCE(most, 2147483647));
END//

-- The next jobs that a filter means, locked, of those in one of the states given, and of running ones those that are not flagged
-- yet. `place` is the id up to which they have been looked at; it is NULL after the last, as `most` is what may still be chosen.
DROP PROCEDURE IF EXISTS jobs__choose//
CREATE PROCEDURE jobs__choose(wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, states VARCHAR(60) CHARACTER SET ascii COLLATE ascii_bin, INOUT most INT, INOUT place CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, OUT ids LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE given_ids, candidates LONGTEXT CHARACTER SET ascii;
    DECLARE state, dead_reason VARCHAR(12) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE queue, name, tenant LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE batch_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE any_tenant BOOLEAN;
    DECLARE moment DATETIME(6);
    DECLARE number, chunk INT;
    SELECT w.ids, w.state, w.queue, w.name, w.tenant, w.any_tenant, w.batch_id, w.dead_reason, w.moment
      INTO given_ids, state, queue, name, tenant, any_tenant, batch_id, dead_reason, moment
      FROM JSON_TABLE(wanted, '$' COLUMNS (
               ids LONGTEXT CHARACTER SET ascii PATH '$.ids', state VARCHAR(12) CHARACTER SET ascii PATH '$.state',
               queue LONGTEXT CHARACTER SET utf8mb4 PATH '$.queue', name LONGTEXT CHARACTER SET utf8mb4 PATH '$.name',
               tenant LONGTEXT CHARACTER SET utf8mb4 PATH '$.tenant', any_tenant INT PATH '$.any_tenant',
               batch_id CHAR(36) CHARACTER SET ascii PATH '$.batch_id', dead_reason VARCHAR(12) CHARACTER SET ascii PATH '$.dead_reason',
               moment VARCHAR(26) CHARACTER SET ascii PATH '$.before')) AS w;

    SET chunk = LEAST(most, 5000);
    IF given_ids IS NOT NULL THEN
        SELECT JSON_ARRAYAGG(c.id), COUNT(*), MAX(c.id) INTO candidates, number, place
          FROM (SELECT DISTINCT t.id
                  FROM JSON_TABLE(given_ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS t
                 WHERE t.id COLLATE ascii_bin > place
                 ORDER BY t.id
                 LIMIT 5000) AS c;
        SET chunk = 5000;
    ELSE
        SELECT JSON_ARRAYAGG(c.id), COUNT(*), MAX(c.id) INTO candidates, number, place
          FROM (SELECT j.id
                  FROM jobs j
                 WHERE j.id > place
                   AND (state IS NULL OR j.state = state)
                   AND (state IS NULL OR state NOT IN ('done', 'dead', 'cancelled') OR j.ended = state)
                   AND (queue IS NULL OR j.queue = queue)
                   AND (name IS NULL OR j.name = name)
                   AND (batch_id IS NULL OR j.batch_id = batch_id)
                   AND (dead_reason IS NULL OR j.dead_reason = dead_reason AND j.ended = 'dead')
                   AND (moment IS NULL OR j.enqueued_at < moment)
                   AND (any_tenant OR j.tenant <=> tenant)
                   AND FIND_IN_SET(j.state, states) > 0
                   AND (j.state <> 'running' OR j.cancel_at IS NULL)
                 ORDER BY j.id
                 LIMIT chunk) AS c;
    END IF;
    IF number < chunk THEN
        SET place = NULL;
    END IF;

    SELECT COALESCE(JSON_ARRAYAGG(p.id), '[]'), most - COUNT(*) INTO ids, most
      FROM (SELECT STRAIGHT_JOIN j.id
              FROM (SELECT t.id
                      FROM JSON_TABLE(candidates, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS t
                     ORDER BY t.id
                     LIMIT 5000) AS c
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = c.id
             WHERE (state IS NULL OR j.state = state)
               AND (queue IS NULL OR j.queue = queue)
               AND (name IS NULL OR j.name = name)
               AND (batch_id IS NULL OR j.batch_id = batch_id)
               AND (dead_reason IS NULL OR j.dead_reason = dead_reason)
               AND (moment IS NULL OR j.enqueued_at < moment)
               AND (any_tenant OR j.tenant <=> tenant)
               AND FIND_IN_SET(j.state, states) > 0
               AND (j.state <> 'running' OR j.cancel_at IS NULL)
             LIMIT most
               FOR UPDATE) AS p;
    IF most = 0 THEN
        SET place = NULL;
    END IF;
END//

-- A job that was named by its id and not chosen because it is running is refused, not passed over.
DROP PROCEDURE IF EXISTS jobs__refuse_running//
CREATE PROCEDURE jobs__refuse_running(named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE running INT;
    SELECT COUNT(*) INTO running FROM jobs j WHERE j.id = named AND j.token IS NOT NULL;
    IF running > 0 THEN
        CALL jobs__refuse('PJ006', CONCAT('the job ', named, ' is running'), 'cancel it with jobs_cancel, or wait until it has ended');
    END IF;
END//

-- Of chosen jobs those that may be active again: they have no key, or have theirs, or got it now. Keys are taken in sorted order.
DROP PROCEDURE IF EXISTS jobs__regain_keys//
CREATE PROCEDURE jobs__regain_keys(INOUT ids LONGTEXT CHARACTER SET ascii, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE job, holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE unique_key VARBINARY(1024);
    DECLARE kept VARCHAR(12) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE refused LONGTEXT CHARACTER SET ascii DEFAULT '';
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE keyed CURSOR FOR
        SELECT j.id, CAST(j.unique_key AS BINARY)
          FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
               STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
         WHERE j.unique_key IS NOT NULL
         ORDER BY 2, 1;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;

    OPEN keyed;
    regain: LOOP
        SET ended = FALSE;
        FETCH keyed INTO job, unique_key;
        IF ended THEN
            LEAVE regain;
        END IF;
        SELECT COALESCE(MAX(k.kept), 'active') INTO kept FROM jobs_keys k WHERE k.`key` = unique_key AND k.job_id = job;
        CALL jobs__take_key(unique_key, job, kept, now, holder);
        IF NOT holder <=> job THEN
            SET refused = CONCAT(refused, job);
        END IF;
    END LOOP;
    CLOSE keyed;
    IF refused <> '' THEN
        SELECT COALESCE(JSON_ARRAYAGG(p.id), '[]') INTO ids
          FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
         WHERE LOCATE(p.id, refused) = 0;
    END IF;
END//

-- What the jobs of each batch among these count: all of them as done, and of them the failed ones; appended to `counted`.
-- Ended ones only, or those that have not ended.
DROP PROCEDURE IF EXISTS jobs__count_in_batches//
CREATE PROCEDURE jobs__count_in_batches(ids LONGTEXT CHARACTER SET ascii, ended BOOLEAN, INOUT counted LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE more LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(JSON_OBJECT('id', b.batch_id, 'done', b.done, 'failed', b.failed)) INTO more
      FROM (SELECT j.batch_id, COUNT(*) AS done, SUM(j.state <> 'done') AS failed
              FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
             WHERE j.batch_id IS NOT NULL
               AND ended = (j.ended IS NOT NULL)
             GROUP BY j.batch_id) AS b;
    SET counted = JSON_MERGE_PRESERVE(counted, COALESCE(more, '[]'));
END//

-- Count what was collected, each batch once.
DROP PROCEDURE IF EXISTS jobs__tally_collected//
CREATE PROCEDURE jobs__tally_collected(counted LONGTEXT CHARACTER SET ascii, way INT, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE sums LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(JSON_OBJECT('id', b.id, 'done', b.done, 'failed', b.failed)) INTO sums
      FROM (SELECT t.id, SUM(t.done) AS done, SUM(t.failed) AS failed
              FROM JSON_TABLE(counted, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', done INT PATH '$.done', failed INT PATH '$.failed')) AS t
             GROUP BY t.id) AS b;
    IF sums IS NOT NULL THEN
        CALL jobs__tally(sums, way, now);
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs__retry//
CREATE PROCEDURE jobs__retry(wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, moment DATETIME(6), delay_ms BIGINT, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE now DATETIME(6);
    DECLARE place CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT '';
    DECLARE most INT DEFAULT JSON_EXTRACT(wanted, '$.limit');
    DECLARE ids, misplaced LONGTEXT CHARACTER SET ascii;
    DECLARE counted LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    SELECT c.now INTO now FROM jobs_clock c;
    SET moment = COALESCE(moment, now + INTERVAL COALESCE(delay_ms, 0) * 1000 MICROSECOND), number = 0;
    WHILE place IS NOT NULL DO
        CALL jobs__choose(wanted, 'dead,cancelled,done,scheduled', most, place, ids);
        IF ids = '[]' THEN
            CALL jobs__refuse_running(named);
        ELSE
            CALL jobs__regain_keys(ids, now);
            IF ids = '[]' AND named IS NOT NULL THEN
                CALL jobs__refuse_held(named);
            END IF;
            CALL jobs__count_in_batches(ids, TRUE, counted);
            UPDATE JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
               SET j.state = CASE WHEN moment > now THEN 'scheduled' ELSE 'pending' END,
                   j.run_at = moment,
                   j.attempts = 0,
                   j.cancel_at = NULL,
                   j.finished_at = NULL,
                   j.dead_reason = NULL;
            CALL jobs__put_right(ids, misplaced);
            SET number = number + JSON_LENGTH(ids);
        END IF;
    END WHILE;
    CALL jobs__tally_collected(counted, -1, now);
END//

DROP PROCEDURE IF EXISTS jobs__refuse_held//
CREATE PROCEDURE jobs__refuse_held(job CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE message LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    -- The holder may have let it go since.
    SELECT CONCAT('the unique key ', JSON_QUOTE(j.unique_key), ' of the job ', CONVERT(j.id USING utf8mb4), ' is held by ',
                  COALESCE(CONCAT('the job ', CONVERT(k.job_id USING utf8mb4)), 'another job'))
      INTO message
      FROM jobs j
      LEFT JOIN jobs_keys k ON k.`key` = CAST(j.unique_key AS BINARY)
     WHERE j.id = job;
    CALL jobs__refuse('PJ007', message, 'wait until that job has ended, or cancel it');
END//

DROP PROCEDURE IF EXISTS jobs_retry//
CREATE PROCEDURE jobs_retry(filter LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE wanted, members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE moment DATETIME(6);
    DECLARE delay_ms BIGINT;
    DECLARE number INT;
    CALL jobs__members(options, 'options', 'run_at, delay_ms', members);
    CALL jobs__moment(members, 'run_at', '', moment);
    CALL jobs__duration(members, 'delay_ms', '', 0, delay_ms);
    IF moment IS NOT NULL AND delay_ms IS NOT NULL THEN
        CALL jobs__refuse('PJ003', 'delay_ms and run_at are both given', 'a job runs at a moment or after a delay');
    END IF;
    CALL jobs__read_filter(filter, wanted, named);

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
        CALL jobs__retry(wanted, named, moment, delay_ms, number);
        COMMIT;
        CALL jobs__put_back(settings);
    END;
    SELECT number AS `count`;
END//

DROP PROCEDURE IF EXISTS jobs__cancel//
CREATE PROCEDURE jobs__cancel(wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE now DATETIME(6);
    DECLARE place CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT '';
    DECLARE most INT DEFAULT JSON_EXTRACT(wanted, '$.limit');
    DECLARE ids, waiting LONGTEXT CHARACTER SET ascii;
    DECLARE counted LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    SELECT c.now INTO now FROM jobs_clock c;
    SET number = 0;
    WHILE place IS NOT NULL DO
        CALL jobs__choose(wanted, 'scheduled,pending,running', most, place, ids);
        IF ids <> '[]' THEN
            SELECT JSON_ARRAYAGG(j.id) INTO waiting
              FROM JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
             WHERE j.token IS NULL;
            UPDATE JSON_TABLE(ids, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                   STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
               SET j.cancel_at = now
             WHERE j.token IS NOT NULL;
            IF waiting IS NOT NULL THEN
                UPDATE JSON_TABLE(waiting, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS p
                       STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = p.id
                   SET j.state = 'cancelled',
                       j.finished_at = now;
                CALL jobs__free_keys(waiting, FALSE);
                CALL jobs__count_in_batches(waiting, TRUE, counted);
            END IF;
            SET number = number + JSON_LENGTH(ids);
        END IF;
    END WHILE;
    CALL jobs__tally_collected(counted, 1, now);
END//

DROP PROCEDURE IF EXISTS jobs_cancel//
CREATE PROCEDURE jobs_cancel(filter LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE number INT;
    CALL jobs__read_filter(filter, wanted, named);
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
        CALL jobs__cancel(wanted, number);
        COMMIT;
        CALL jobs__put_back(settings);
    END;
    SELECT number AS `count`;
END//

DROP PROCEDURE IF EXISTS jobs__discard//
CREATE PROCEDURE jobs__discard(wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, OUT number INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE now DATETIME(6);
    DECLARE place CHAR(36) CHARACTER SET ascii COLLATE ascii_bin DEFAULT '';
    DECLARE most INT DEFAULT JSON_EXTRACT(wanted, '$.limit');
    DECLARE ids LONGTEXT CHARACTER SET ascii;
    DECLARE counted LONGTEXT CHARACTER SET ascii DEFAULT '[]';
    SELECT c.now INTO now FROM jobs_clock c;
    SET number = 0;
    WHILE place IS NOT NULL DO
        CALL jobs__choose(wanted, 'scheduled,pending,done,dead,cancelled', most, place, ids);
        IF ids = '[]' THEN
            CALL jobs__refuse_running(named);
        ELSE
            CALL jobs__count_in_batches(ids, FALSE, counted);
            CALL jobs__remove(ids);
            SET number = number + JSON_LENGTH(ids);
        END IF;
    END WHILE;
    CALL jobs__tally_collected(counted, 1, now);
END//

DROP PROCEDURE IF EXISTS jobs_discard//
CREATE PROCEDURE jobs_discard(filter LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE wanted LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE named CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE number INT;
    CALL jobs__read_filter(filter, wanted, named);
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
        CALL jobs__discard(wanted, named, number);
        COMMIT;
        CALL jobs__put_back(settings);
    END;
    SELECT number AS `count`;
END//

DROP PROCEDURE IF EXISTS jobs_pause_queue//
CREATE PROCEDURE jobs_pause_queue(queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    CALL jobs__fit(COALESCE(queue, ''), 'queue');
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        INSERT INTO jobs_paused (queue, paused_at)
        SELECT queue, c.now
          FROM jobs_clock c
            ON DUPLICATE KEY UPDATE paused_at = jobs_paused.paused_at;
        COMMIT;
    END;
END//

DROP PROCEDURE IF EXISTS jobs_resume_queue//
CREATE PROCEDURE jobs_resume_queue(queue LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    CALL jobs__fit(COALESCE(queue, ''), 'queue');
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        DELETE p FROM jobs_paused p WHERE p.queue = queue;
        COMMIT;
    END;
END//

DROP PROCEDURE IF EXISTS jobs_set//
CREATE PROCEDURE jobs_set(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE number BIGINT;
    DECLARE flag BOOLEAN;
    CASE name
        WHEN 'max_args_bytes' THEN
            CALL jobs__integer(JSON_OBJECT(name, COALESCE(NULLIF(value, 'null'), '""')), name, '', 1, 104857600, number);
        WHEN 'keep_keys_ms' THEN
            CALL jobs__duration(JSON_OBJECT(name, value), name, '', 0, number);
        WHEN 'notify' THEN
            CALL jobs__boolean(JSON_OBJECT(name, COALESCE(NULLIF(value, 'null'), '""')), name, '', flag);
        ELSE
            CALL jobs__refuse('PJ003', CONCAT('there is no setting ', COALESCE(JSON_QUOTE(name), 'null')), 'the settings are max_args_bytes, keep_keys_ms and notify');
    END CASE;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        UPDATE jobs_settings s
           SET s.value = COALESCE(number, CASE flag WHEN TRUE THEN 'true' WHEN FALSE THEN 'false' END, 'null')
         WHERE s.name = name;
        COMMIT;
    END;
END//
