-- jobs_take_slot, jobs_free_slot: the numbered permits of a bucket.
--
-- A slot is taken by inserting it: the primary key (bucket, slot) lets one of two takers win, and the other, who waited
-- for the first to commit, goes on to the next number. Nothing needs to be counted for that: a number below the limit
-- is free or it is not. Only after a limit was lowered, while numbers above it are still held, are the held ones counted.
-- A slot is valid while its job runs under its token; the sweep frees the others.
--
-- The insert says ON DUPLICATE KEY UPDATE, because it then locks the entry it meets for itself alone: of several who wait for one slot that
-- is being freed each gets it or waits on, where the shared locks of a plain INSERT would deadlock them.

DELIMITER //

-- The slot that a claim has, or gets above the number `above`; NULL when there is none. A claim that takes several
-- passes the last number it took in the bucket: those who only go upwards do not deadlock with one another.
DROP PROCEDURE IF EXISTS jobs__take_slot//
CREATE PROCEDURE jobs__take_slot(bucket VARBINARY(2284), job_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin, above INT, now DATETIME(6), OUT slot INT)
SQL SECURITY DEFINER
BEGIN
    DECLARE most, free, held, highest INT;
    DECLARE held_bucket VARBINARY(2284);
    DECLARE held_token, holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE bound LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT CONVERT(SUBSTRING_INDEX(bucket, ':', 1) USING utf8mb4);

    SET slot = NULL;
    SELECT g.slots INTO most FROM jobs_groups g WHERE g.name = bound;
    SELECT s.slot, s.bucket, s.token INTO held, held_bucket, held_token FROM jobs_slots s WHERE s.job_id = job_id LIMIT 1;
    IF held IS NOT NULL THEN
        SET slot = CASE WHEN held_bucket = bucket AND held_token = token THEN held END;
    ELSE
        climb: WHILE above + 1 < most DO
            SET free = NULL;
            SELECT above + 1 - COUNT(*) INTO free FROM jobs_slots s WHERE s.bucket = bucket AND s.slot = above + 1;
            IF free = above THEN
                SELECT COALESCE(MIN(s.slot) + 1, above + 1) INTO free
                  FROM jobs_slots s
                 WHERE s.bucket = bucket
                   AND s.slot > above
                   AND NOT EXISTS (SELECT 1 FROM jobs_slots n WHERE n.bucket = s.bucket AND n.slot = s.slot + 1);
            END IF;
            SELECT COUNT(*), MAX(s.slot) INTO held, highest FROM jobs_slots s WHERE s.bucket = bucket;
            IF free >= most OR highest >= most AND held >= most THEN
                LEAVE climb;
            END IF;

            INSERT INTO jobs_slots (bucket, slot, job_id, token, taken_at)
            VALUES (bucket, free, job_id, token, now)
            ON DUPLICATE KEY UPDATE taken_at = jobs_slots.taken_at;
            SELECT s.job_id INTO holder FROM jobs_slots s WHERE s.bucket = bucket AND s.slot = free FOR UPDATE;
            IF holder = job_id THEN
                SET slot = free;
                LEAVE climb;
            END IF;
            SET above = free;
        END WHILE;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs_take_slot//
CREATE PROCEDURE jobs_take_slot(bucket LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, job_id LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, token LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE job, holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE moment DATETIME(6);
    DECLARE taken INT;
    CALL jobs__as_uuid(COALESCE(job_id, ''), 'job_id', job);
    CALL jobs__as_uuid(COALESCE(token, ''), 'token', holder);
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        SELECT c.now INTO moment FROM jobs_clock c;
        IF CHAR_LENGTH(bucket) <= 571 THEN  -- a longer one there cannot be
            CALL jobs__take_slot(bucket, job, holder, -1, moment, taken);
        END IF;
        COMMIT;
    END;
    SELECT taken AS slot;
END//

DROP PROCEDURE IF EXISTS jobs_free_slot//
CREATE PROCEDURE jobs_free_slot(bucket LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, slot LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, token LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE holder CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE freed BOOLEAN;
    CALL jobs__as_uuid(token, 'token', holder);
    IF slot NOT REGEXP '^-?[0-9]{1,9}\\z' THEN
        CALL jobs__refuse('PJ003', 'slot is not a whole number', 'pass the number of the slot, from 0');
    END IF;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
            ROLLBACK;
            RESIGNAL;
        END;
        DELETE s FROM jobs_slots s WHERE s.bucket = CAST(bucket AS BINARY) AND s.slot = CAST(slot AS SIGNED) AND s.token = holder;
        SET freed = ROW_COUNT() > 0;
        COMMIT;
    END;
    SELECT freed;
END//
