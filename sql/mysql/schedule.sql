-- jobs_put_schedule, jobs_prune_schedules, jobs_tick_schedule: jobs at moments that come round.
--
-- Any number of workers may tick one moment. The schedule's row is locked and must still stand at `expected`: so one
-- of them fires, and the others find it moved on. The job goes in in the same transaction, under a key made of the
-- schedule and the moment that is kept while its row is there: a schedule put back to a moment that has fired does not
-- fire it again.
--
-- When a moment comes is for the caller to say (cron is read by the driver); that it has come is for the clock here.
-- Moments are UTC, as the columns are.

DELIMITER //

DROP PROCEDURE IF EXISTS jobs__put_schedule//
CREATE PROCEDURE jobs__put_schedule(
    name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, job VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, cron LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, every_ms BIGINT, timezone VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, args LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, source VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, enabled BOOLEAN, next_run_at DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE present INT DEFAULT 0;
    SELECT COUNT(*) INTO present FROM jobs_schedules s WHERE s.name = name FOR UPDATE;
    IF NOT present THEN
        INSERT INTO jobs_schedules (name, job, cron, every_ms, timezone, args, options, source, enabled, next_run_at)
        VALUES (name, job, cron, every_ms, timezone, args, options, source, COALESCE(enabled, TRUE), next_run_at)
        ON DUPLICATE KEY UPDATE enabled = jobs_schedules.enabled;
    END IF;
    -- (Of an UPDATE the later columns meet the earlier ones changed: the moment comes first.)
    UPDATE jobs_schedules s
       SET s.next_run_at = CASE WHEN s.cron <=> cron AND s.every_ms <=> every_ms AND s.timezone = timezone THEN s.next_run_at ELSE next_run_at END,
           s.job = job,
           s.cron = cron,
           s.every_ms = every_ms,
           s.timezone = timezone,
           s.args = args,
           s.options = options,
           s.source = source,
           s.enabled = COALESCE(enabled, s.enabled)
     WHERE s.name = name;
END//

DROP PROCEDURE IF EXISTS jobs_put_schedule//
CREATE PROCEDURE jobs_put_schedule(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, next_run_at LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE members, job, cron, timezone, args, job_options, source LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE queue, bound, path, state, unique_key, kept, tenant, batch_id, meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms, every_ms BIGINT;
    DECLARE moment, run_at, first DATETIME(6);
    DECLARE enabled BOOLEAN;

    CALL jobs__as_moment(next_run_at, first);
    CALL jobs__fit(COALESCE(name, ''), 'name');
    CALL jobs__members(COALESCE(options, '{}'), 'options', 'job, cron, every_ms, timezone, args, options, source, enabled', members);
    CALL jobs__text(members, 'job', '', job);
    CALL jobs__text(members, 'cron', '', cron);
    CALL jobs__duration(members, 'every_ms', '', 1, every_ms);
    CALL jobs__name(members, 'timezone', '', timezone);
    CALL jobs__inner_args(members, 'args', args);
    CALL jobs__object(members, 'options', '', job_options);
    CALL jobs__name(members, 'source', '', source);
    CALL jobs__boolean(members, 'enabled', '', enabled);
    SET job_options = COALESCE(job_options, '{}');
    IF job IS NULL THEN
        CALL jobs__refuse('PJ003', 'job is missing', 'name the job that the schedule enqueues');
    ELSEIF (cron IS NULL) = (every_ms IS NULL) OR TRIM(cron) = '' THEN
        CALL jobs__refuse('PJ011', CONCAT('the schedule ', JSON_QUOTE(name), ' has no timing, or two: it takes either cron or every_ms'),
                          'say {"cron": "0 3 * * *"} or {"every_ms": 900000}');
    ELSEIF first IS NULL OR first NOT BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' THEN  -- as jobs__moment
        CALL jobs__refuse('PJ011', CONCAT('the schedule ', JSON_QUOTE(name), ' has no next moment'), 'pass the moment at which it fires next');
    END IF;

    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        -- (Within: with autocommit off, whatever is read begins a transaction.)
        CALL jobs__draft(job, 'job', job_options, 'options.', NULL, 'queue, priority, max_attempts, timeout_ms, tenant, meta',
                         queue, priority, max_attempts, timeout_ms, bound, path, moment, run_at, state, unique_key, kept, tenant, batch_id, meta);
        CALL jobs__put_schedule(name, job, cron, every_ms, COALESCE(timezone, 'UTC'), args, job_options, source, enabled, first);
        COMMIT;
    END;
END//

-- `names` is a JSON array of those that the source still declares.
DROP PROCEDURE IF EXISTS jobs_prune_schedules//
CREATE PROCEDURE jobs_prune_schedules(source LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, names LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE declared LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE pruned INT;
    DECLARE valid BOOLEAN;
    CALL jobs__is_json(names, valid);
    CALL jobs__texts(JSON_OBJECT('names', IF(valid, names, '?')), 'names', '', declared);
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
        DELETE s
          FROM jobs_schedules s
          LEFT JOIN JSON_TABLE(declared, '$[*]' COLUMNS (name VARCHAR(190) CHARACTER SET utf8mb4 PATH '$')) AS d ON d.name COLLATE utf8mb4_bin = s.name
         WHERE s.source = source
           AND d.name IS NULL;
        SET pruned = ROW_COUNT();
        COMMIT;
        CALL jobs__put_back(settings);
    END;
    SELECT pruned;
END//

DROP PROCEDURE IF EXISTS jobs__tick_schedule//
CREATE PROCEDURE jobs__tick_schedule(name VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, expected DATETIME(6), next DATETIME(6), OUT fired CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE job, args, options, queue, bound, path, state, unique_key, kept, tenant, batch_id, meta LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE priority, max_attempts, timeout_ms BIGINT;
    DECLARE moment, run_at DATETIME(6);
    DECLARE bucket VARBINARY(2284);
    DECLARE inserted BOOLEAN;

    SET fired = NULL;
    SELECT c.now INTO moment FROM jobs_clock c;
    SELECT s.job, s.args, s.options, s.name INTO job, args, options, name
      FROM jobs_schedules s
     WHERE s.name = name
       AND s.next_run_at = expected
       AND s.next_run_at <= moment
       AND s.enabled
       FOR UPDATE;
    IF job IS NOT NULL THEN
        IF next IS NULL OR next <= moment OR next > '9999-12-30 00:00:00' THEN
            CALL jobs__refuse('PJ011', CONCAT('the next moment of the schedule ', JSON_QUOTE(name), ' is not after now, or too far'),
                              'pass the first moment after now, so that missed ones do not pile up');
        END IF;
        CALL jobs__draft(job, 'job', options, 'options.', NULL, 'queue, priority, max_attempts, timeout_ms, tenant, meta',
                         queue, priority, max_attempts, timeout_ms, bound, path, moment, run_at, state, unique_key, kept, tenant, batch_id, meta);
        CALL jobs__bucket(bound, path, args, bucket);
        CALL jobs__new_id(fired);
        SET unique_key = CONCAT('schedule:', name, ':', DATE_FORMAT(expected, '%Y-%m-%dT%H:%i:%s.%fZ'));
        CALL jobs__admit(fired, job, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, 'row', tenant, NULL, moment, args, meta, inserted);
        IF NOT inserted THEN
            SET fired = NULL;
        END IF;
        UPDATE jobs_schedules s
           SET s.next_run_at = next,
               s.last_run_at = expected,
               s.last_job_id = COALESCE(fired, s.last_job_id)
         WHERE s.name = name;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_tick_schedule//
CREATE PROCEDURE jobs_tick_schedule(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, expected LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, next LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE present, following DATETIME(6);
    DECLARE fired CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    CALL jobs__as_moment(expected, present);
    CALL jobs__as_moment(next, following);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        CALL jobs__tick_schedule(IF(CHAR_LENGTH(name) <= 190, name, NULL), present, following, fired);
        COMMIT;
    END;
    SELECT fired;
END//
