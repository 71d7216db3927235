-- jobs_heartbeat: extends the leases of the claims a worker names, records the worker, and answers what needs attention:
-- `cancel` where somebody asked for it, `lost` where the claim is not the worker's any more.
--
-- Only what is named is extended: a claim whose reply never arrived expires. Rows are locked by their ids, in order, and
-- those locked elsewhere are passed over: one that somebody does not let go must not cost the others their leases, and
-- its own is looked after by the lock, as a rescue passes it over too. No index holds lease_until, so that a heartbeat
-- changes none.

DELIMITER //

-- The worker as it speaks of itself. What the engine's own reader of JSON refuses is kept as text, and no view looks into it.
DROP PROCEDURE IF EXISTS jobs__record_worker//
CREATE PROCEDURE jobs__record_worker(worker VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, info LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, lease_ms BIGINT, now DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    INSERT INTO jobs_workers (id, info, started_at, seen_at, live_until)
    VALUES (worker, COALESCE(info, '{}'), now, now, now + INTERVAL lease_ms * 1000 MICROSECOND)
        ON DUPLICATE KEY UPDATE
           info = COALESCE(info, jobs_workers.info),
           seen_at = now,
           live_until = now + INTERVAL lease_ms * 1000 MICROSECOND;
END//

-- The claims a document names, in lower case. One that is written as drivers do needs no closer look.
DROP PROCEDURE IF EXISTS jobs__read_held//
CREATE PROCEDURE jobs__read_held(held LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT claims LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE pieces, piece, members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE id, token CHAR(36) CHARACTER SET ascii COLLATE ascii_bin;
    DECLARE place VARCHAR(40) CHARACTER SET utf8mb4;
    DECLARE number INT DEFAULT 0;
    DECLARE valid BOOLEAN;

    IF held REGEXP '^\\[(?:\\{"id": ?"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", ?"token": ?"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"\\}(?:, ?)?)*+\\]\\z' AND JSON_VALID(held) THEN
        SET claims = LOWER(held);
    ELSE
        CALL jobs__is_json(held, valid);
        IF NOT valid OR held NOT REGEXP '^[ \\t\\n\\r]*+\\[' THEN
            CALL jobs__refuse('PJ003', 'held is not a JSON array', 'pass an array of {"id", "token"}');
        END IF;
        SET claims = '';
        CALL jobs__split(held, pieces);
        WHILE pieces <> '' DO
            SET place = CONCAT('held[', number, ']'), number = number + 1;
            CALL jobs__next_piece(pieces, piece);
            CALL jobs__members(piece, place, 'id, token', members);
            CALL jobs__uuid(members, 'id', CONCAT(place, '.'), id);
            CALL jobs__uuid(members, 'token', CONCAT(place, '.'), token);
            IF id IS NULL OR token IS NULL THEN
                CALL jobs__refuse('PJ003', CONCAT(place, ' lacks its id or token'), 'name each claim as {"id", "token"}');
            END IF;
            SET claims = CONCAT(claims, ',{"id":"', id, '","token":"', token, '"}');
        END WHILE;
        SET claims = CONCAT('[', SUBSTRING(claims, 2), ']');
    END IF;
END//

-- Extend the claims that are still the worker's. Answers, as JSON, what needs attention.
DROP PROCEDURE IF EXISTS jobs__keep//
CREATE PROCEDURE jobs__keep(claims LONGTEXT CHARACTER SET ascii, lease_ms BIGINT, now DATETIME(6), OUT attention LONGTEXT CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    DECLARE free LONGTEXT CHARACTER SET ascii;
    SELECT JSON_ARRAYAGG(f.id) INTO free
      FROM (SELECT STRAIGHT_JOIN j.id
              FROM (SELECT DISTINCT t.id, t.token
                      FROM JSON_TABLE(claims, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token')) AS t
                     ORDER BY id
                     LIMIT 1000000) AS c
              JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = c.id AND j.token = c.token
             LIMIT 1000000
               FOR UPDATE SKIP LOCKED) AS f;
    UPDATE JSON_TABLE(free, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$')) AS f
           STRAIGHT_JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = f.id
       SET j.lease_until = now + INTERVAL lease_ms * 1000 MICROSECOND;

    -- What was extended is locked; of the rest it is told what is seen.
    SELECT JSON_ARRAYAGG(JSON_OBJECT('id', a.id, 'signal', a.said)) INTO attention
      FROM (SELECT DISTINCT t.id, CASE WHEN j.id IS NULL THEN 'lost' ELSE 'cancel' END AS said
              FROM JSON_TABLE(claims, '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', token CHAR(36) CHARACTER SET ascii PATH '$.token')) AS t
              LEFT JOIN jobs j FORCE INDEX (PRIMARY) ON j.id = t.id AND j.token = t.token
             WHERE j.id IS NULL
                OR j.cancel_at IS NOT NULL) AS a;
END//

DROP PROCEDURE IF EXISTS jobs_heartbeat//
CREATE PROCEDURE jobs_heartbeat(worker LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, held LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, options LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE settings VARCHAR(30) CHARACTER SET ascii;
    DECLARE members, info LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE claims, attention LONGTEXT CHARACTER SET ascii;
    DECLARE lease_ms BIGINT;
    DECLARE leaving BOOLEAN;
    DECLARE now DATETIME(6);
    CALL jobs__fit(COALESCE(worker, ''), 'worker');
    CALL jobs__read_held(COALESCE(held, '[]'), claims);
    CALL jobs__members(options, 'options', 'lease_ms, info, leaving', members);
    CALL jobs__duration(members, 'lease_ms', '', 0, lease_ms);
    CALL jobs__object(members, 'info', '', info);
    CALL jobs__boolean(members, 'leaving', '', leaving);
    SET lease_ms = COALESCE(lease_ms, 300000);

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
        IF claims <> '[]' THEN
            CALL jobs__keep(claims, lease_ms, now, attention);
        END IF;
        IF leaving THEN
            DELETE w FROM jobs_workers w WHERE w.id = worker;
        ELSE
            CALL jobs__record_worker(worker, info, lease_ms, now);
        END IF;
        COMMIT;
        CALL jobs__put_back(settings);
    END;
    SELECT a.id, a.said AS `signal`
      FROM JSON_TABLE(COALESCE(attention, '[]'), '$[*]' COLUMNS (id CHAR(36) CHARACTER SET ascii PATH '$.id', said VARCHAR(6) CHARACTER SET ascii PATH '$.signal')) AS a;
END//
