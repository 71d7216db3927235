-- jobs_grant: lets an account be a producer, worker, operator or viewer.
--
-- The routines run with the rights of their owner, so a role needs nothing but EXECUTE on those of its kind, and SELECT on
-- the views; it can write no table. Who may grant is the owner alone: jobs_grant runs with the rights of its caller, who needs what he gives,
-- with GRANT OPTION. (GRANT EXECUTE, SELECT ON app.* TO owner WITH GRANT OPTION is enough; the owner of everything in the
-- database usually has it by GRANT ALL … WITH GRANT OPTION.) GRANT takes no parameters: the account is quoted into its text.
--
-- An account is written user, user@host or 'user'@'host'. None is created here: one that is not there is refused. Whoever may create
-- temporary tables in this database can put one in the place of a table for his own session, and so escape what the tables
-- say: give nobody that right but those who may do everything.
--
-- A routine that is dropped takes its grants along, and to replace one is to drop it. So what was granted is remembered in
-- jobs__grants, and this file ends by granting it again.

DELIMITER //

-- What a role may call, and what it may read.
DROP PROCEDURE IF EXISTS jobs__role//
CREATE PROCEDURE jobs__role(role LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT routines LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT views LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    SET routines = CASE role
        WHEN 'producer' THEN 'jobs_contract,jobs_enqueue,jobs_enqueue_with_id,jobs_enqueue_many,jobs_open_batch,jobs_seal_batch'
        WHEN 'worker' THEN 'jobs_contract,jobs_claim,jobs_heartbeat,jobs_settle,jobs_settle_many,jobs_take_slot,jobs_free_slot,jobs_advance_batch,jobs_put_schedule,jobs_prune_schedules,jobs_tick_schedule,jobs_sweep,jobs_define,jobs_forget'
        WHEN 'operator' THEN 'jobs_contract,jobs_retry,jobs_cancel,jobs_discard,jobs_pause_queue,jobs_resume_queue,jobs_set,jobs_advance_batch'
        WHEN 'viewer' THEN 'jobs_contract'
    END;
    SET views = CASE
        WHEN role = 'producer' THEN 'jobs_defined'
        ELSE 'jobs_list,jobs_errors,jobs_status,jobs_backlog,jobs_active,jobs_dead,jobs_timings,jobs_limits,jobs_batch_status,jobs_schedule_status,jobs_worker_status,jobs_orphans,jobs_defined,jobs_paused_queues'
    END;
    SET views = CONCAT(views, ',jobs_clock,jobs__installed', CASE role WHEN 'worker' THEN ',jobs__work' ELSE '' END);
END//

-- Give one right on each of a list of objects that are here, as `form` says with the object in the place of the question mark.
DROP PROCEDURE IF EXISTS jobs__grant_each//
CREATE PROCEDURE jobs__grant_each(form LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, list LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, account LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY INVOKER
BEGIN
    DECLARE name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE present INT;
    IF VERSION() LIKE '%MariaDB%' THEN  -- which would create an account that is not there; a mode lasts as long as the procedure
        SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_CREATE_USER');
    END IF;
    WHILE list <> '' DO
        SET name = SUBSTRING_INDEX(list, ',', 1), list = SUBSTRING(list, CHAR_LENGTH(name) + 2);
        SELECT (SELECT COUNT(*) FROM information_schema.routines r WHERE r.routine_schema = DATABASE() AND r.routine_name = name)
             + (SELECT COUNT(*) FROM information_schema.views v WHERE v.table_schema = DATABASE() AND v.table_name = name)
          INTO present;
        IF present > 0 THEN
            SET @jobs_statement = CONCAT(REPLACE(form, '?', CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.', name)), ' TO ', account);
            PREPARE jobs_statement FROM @jobs_statement;
            EXECUTE jobs_statement;
            DEALLOCATE PREPARE jobs_statement;
        END IF;
    END WHILE;
END//

DROP PROCEDURE IF EXISTS jobs_grant//
CREATE PROCEDURE jobs_grant(principal LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, role LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY INVOKER
BEGIN
    DECLARE routines, views, account LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    -- There is no such account, or can be none of that length; the engine would have to create it.
    DECLARE EXIT HANDLER FOR 1133, 1410, 1470
        CALL jobs__refuse('PJ003', CONCAT('there is no account ', JSON_QUOTE(principal)), 'create it first: CREATE USER …');

    CALL jobs__role(role, routines, views);
    IF routines IS NULL THEN
        CALL jobs__refuse('PJ003', CONCAT('there is no role ', COALESCE(JSON_QUOTE(role), 'null')), 'the roles are producer, worker, operator and viewer');
    ELSEIF COALESCE(principal, '') = '' THEN
        CALL jobs__refuse('PJ003', 'the account is missing', 'name it as user or user@host');
    END IF;
    SET account = SUBSTRING_INDEX(principal, '@', CASE WHEN LOCATE('@', principal) > 0 THEN CHAR_LENGTH(principal) - CHAR_LENGTH(REPLACE(principal, '@', '')) ELSE 1 END);
    SET account = CONCAT(
        QUOTE(TRIM(BOTH '''' FROM account)),
        CASE WHEN LOCATE('@', principal) > 0 THEN CONCAT('@', QUOTE(TRIM(BOTH '''' FROM SUBSTRING_INDEX(principal, '@', -1)))) ELSE '' END);

    CALL jobs__grant_each('GRANT SELECT ON ?', views, account);
    CALL jobs__grant_each('GRANT EXECUTE ON PROCEDURE ?', routines, account);
    INSERT INTO jobs__grants (principal, role)
    VALUES (principal, role)
        ON DUPLICATE KEY UPDATE role = jobs__grants.role;
    COMMIT;
END//

-- Grant again what was granted. An account that has gone since is forgotten.
DROP PROCEDURE IF EXISTS jobs__grant_again//
CREATE PROCEDURE jobs__grant_again()
SQL SECURITY INVOKER
BEGIN
    DECLARE principal, role LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE ended BOOLEAN DEFAULT FALSE;
    DECLARE granted CURSOR FOR SELECT g.principal, g.role FROM jobs__grants g;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET ended = TRUE;
    DECLARE CONTINUE HANDLER FOR SQLSTATE 'PJ003'
        DELETE g FROM jobs__grants g WHERE g.principal = principal;
    OPEN granted;
    again: LOOP
        SET ended = FALSE;
        FETCH granted INTO principal, role;
        IF ended THEN
            LEAVE again;
        END IF;
        CALL jobs_grant(principal, role);
    END LOOP;
    CLOSE granted;
    COMMIT;
END//

CALL jobs__grant_again()//
