-- The ground the routines stand on: the clock, ids, refusals, and how JSON is read.
--
-- The view jobs_clock is the only place that reads the clock. A routine reads it once, so that everything it does happens
-- at one moment, and hands it on as `now`. It is UTC whatever the session's time zone, and the server's time whatever moment a session that may
-- not be trusted has said it is (SET timestamp): of what tells the time only SYSDATE does not follow that, but the time zone. So it is
-- asked how far SYSDATE is from NOW, which UTC_TIMESTAMP stands for. Where that is far, the time zone may have put its clocks forward or
-- back in between, and SYSDATE is taken for what it says, which is ambiguous in the one hour that comes twice. (A server that was started with
-- --sysdate-is-now has no such clock.) It is no constant, so no index is searched by it, but by a variable that holds it.
--
-- A routine keeps the sql_mode, the character set and the collation under which it was created, not its caller's. Every text
-- names its character set all the same, because a routine's variables would else have that of the database.
--
-- COLLATE utf8mb4_bin stands for a collation that pads nothing with spaces, or "a " would be "a": utf8mb4_0900_bin on MySQL, utf8mb4_nopad_bin on
-- MariaDB, which is put there as the files are sent. Literals keep the real one, in quotes below, which is that of what JSON functions give.
--
-- JSON is never parsed by the engine where its text matters: a JSON column, and each function that gives JSON back, writes numbers anew,
-- sorts keys and drops doubles; lone surrogates, 1e400 (MySQL) and what is nested 32 deep (MariaDB) are errors to it. So documents are
-- taken apart as text: jobs__split. They may be nested 100 deep.
--
-- Nothing here reads a table in an expression: SET v = (SELECT …) and IF EXISTS (…) lock what they read, SELECT … INTO does not.
-- ROW_COUNT() is not asked where nothing may have changed, for the client decides what it counts then.
--
-- A refusal is a SQLSTATE, PJ001 and so on, with the number 20001 and so on for drivers that show no SQLSTATE. Its text is cut at 128
-- characters; the whole of it and the hint are left in the session's @jobs_message and @jobs_hint.

SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';
SET NAMES 'utf8mb4' COLLATE 'utf8mb4_bin';

DELIMITER //

CREATE OR REPLACE SQL SECURITY DEFINER VIEW jobs_clock AS
SELECT CASE WHEN ABS(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6))) < 60
            THEN UTC_TIMESTAMP(6) + INTERVAL TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) MICROSECOND
            ELSE TIMESTAMPADD(MICROSECOND, UNIX_TIMESTAMP(SYSDATE(6)) * 1000000, TIMESTAMP'1970-01-01 00:00:00.000000') END AS now//

-- Three settings of the session would make a routine do less than it says: how much MariaDB's JSON_ARRAYAGG puts together (as little as 4 bytes),
-- whether a change must name a key, and how many rows a statement may be thought to read (`mysql --safe-updates` sets the last two). A routine that
-- could meet them sets them aside, and puts them back on each way out. (Where it is killed no handler runs: the session keeps what they are then.)
DROP PROCEDURE IF EXISTS jobs__set_aside//
CREATE PROCEDURE jobs__set_aside(OUT settings VARCHAR(30) CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    SET settings = CONCAT(IF(@@SESSION.sql_safe_updates, 1, 0), IF(@@SESSION.sql_big_selects, 1, 0), @@SESSION.group_concat_max_len);
    SET SESSION group_concat_max_len = 1073741824, SESSION sql_safe_updates = FALSE, SESSION sql_big_selects = TRUE;
END//

DROP PROCEDURE IF EXISTS jobs__put_back//
CREATE PROCEDURE jobs__put_back(settings VARCHAR(30) CHARACTER SET ascii)
SQL SECURITY DEFINER
BEGIN
    IF settings IS NOT NULL THEN
        SET SESSION sql_safe_updates = CAST(LEFT(settings, 1) AS UNSIGNED), SESSION sql_big_selects = CAST(SUBSTRING(settings, 2, 1) AS UNSIGNED),
            SESSION group_concat_max_len = CAST(SUBSTRING(settings, 3) AS UNSIGNED);
    END IF;
END//

-- The version of the contract that these routines keep.
DROP PROCEDURE IF EXISTS jobs_contract//
CREATE PROCEDURE jobs_contract()
SQL SECURITY DEFINER
BEGIN
    SELECT 1 AS version;
END//

DROP PROCEDURE IF EXISTS jobs__refuse//
CREATE PROCEDURE jobs__refuse(code CHAR(5) CHARACTER SET ascii, message LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, hint LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE said VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT LEFT(IF(CHAR_LENGTH(message) + CHAR_LENGTH(hint) <= 124, CONCAT(message, ' (', hint, ')'), message), 128);
    SET @jobs_message = message;
    SET @jobs_hint = hint;
    -- (A SQLSTATE is a literal in SIGNAL.)
    CASE code
        WHEN 'PJ001' THEN SIGNAL SQLSTATE 'PJ001' SET MYSQL_ERRNO = 20001, MESSAGE_TEXT = said;
        WHEN 'PJ002' THEN SIGNAL SQLSTATE 'PJ002' SET MYSQL_ERRNO = 20002, MESSAGE_TEXT = said;
        WHEN 'PJ003' THEN SIGNAL SQLSTATE 'PJ003' SET MYSQL_ERRNO = 20003, MESSAGE_TEXT = said;
        WHEN 'PJ004' THEN SIGNAL SQLSTATE 'PJ004' SET MYSQL_ERRNO = 20004, MESSAGE_TEXT = said;
        WHEN 'PJ005' THEN SIGNAL SQLSTATE 'PJ005' SET MYSQL_ERRNO = 20005, MESSAGE_TEXT = said;
        WHEN 'PJ006' THEN SIGNAL SQLSTATE 'PJ006' SET MYSQL_ERRNO = 20006, MESSAGE_TEXT = said;
        WHEN 'PJ007' THEN SIGNAL SQLSTATE 'PJ007' SET MYSQL_ERRNO = 20007, MESSAGE_TEXT = said;
        WHEN 'PJ008' THEN SIGNAL SQLSTATE 'PJ008' SET MYSQL_ERRNO = 20008, MESSAGE_TEXT = said;
        WHEN 'PJ009' THEN SIGNAL SQLSTATE 'PJ009' SET MYSQL_ERRNO = 20009, MESSAGE_TEXT = said;
        WHEN 'PJ010' THEN SIGNAL SQLSTATE 'PJ010' SET MYSQL_ERRNO = 20010, MESSAGE_TEXT = said;
        WHEN 'PJ011' THEN SIGNAL SQLSTATE 'PJ011' SET MYSQL_ERRNO = 20011, MESSAGE_TEXT = said;
    END CASE;
END//

-- The first 18 characters of a UUIDv7, and the first hexadecimal digits of the rest of it, which count up from `n`: what is made at one
-- time sorts by n. Ids are put in order by this; nothing is decided by it.
DROP PROCEDURE IF EXISTS jobs__id_prefix//
CREATE PROCEDURE jobs__id_prefix(OUT prefix CHAR(18) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE ticks CHAR(15) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT LPAD(LOWER(HEX(CAST(FLOOR(UNIX_TIMESTAMP(SYSDATE(6)) * 4096000) AS UNSIGNED))), 15, '0');
    SET prefix = CONCAT(LEFT(ticks, 8), '-', SUBSTRING(ticks, 9, 4), '-7', RIGHT(ticks, 3));
END//

DROP PROCEDURE IF EXISTS jobs__new_id//
CREATE PROCEDURE jobs__new_id(OUT id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE prefix CHAR(18) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    CALL jobs__id_prefix(prefix);
    SET id = CONCAT(prefix, '-8000-00', LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 10));
END//

-- Replace all that matches, in a text that may be long. MariaDB looks through all of a text again for each match, unless it is told
-- that these are bytes: patterns here look for nothing but ASCII.
DROP PROCEDURE IF EXISTS jobs__replace_all//
CREATE PROCEDURE jobs__replace_all(INOUT body LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, pattern LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, replacement LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE bytes LONGBLOB;
    IF VERSION() LIKE '%MariaDB%' THEN
        SET bytes = REGEXP_REPLACE(CAST(body AS BINARY), CAST(pattern AS BINARY), CAST(replacement AS BINARY));
        SET body = CONVERT(bytes USING utf8mb4);
    ELSE
        SET body = REGEXP_REPLACE(body, pattern, replacement);
    END IF;
END//

-- (A pattern that may begin with white space is tried at each place in a text, which MySQL breaks off where that is long.)
DROP PROCEDURE IF EXISTS jobs__trim_end//
CREATE PROCEDURE jobs__trim_end(INOUT body LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    WHILE RIGHT(body, 1) REGEXP '[ \\t\\n\\r]' DO
        SET body = TRIM(TRAILING '\r' FROM TRIM(TRAILING '\n' FROM TRIM(TRAILING '\t' FROM RTRIM(body))));
    END WHILE;
END//

-- Whether a text is JSON, nested 100 deep at most. What MySQL takes is JSON; MariaDB also takes [5.], [1e] and "\x".
-- The rest is looked at by rule: texts, scalars and white space are put down to one sign each, and then each pass takes the innermost lists
-- and objects for a value. T is the beginning, U+0002 a text, K a key with its colon, M a member, 0 a value.
DROP PROCEDURE IF EXISTS jobs__is_json//
CREATE PROCEDURE jobs__is_json(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT valid BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE body LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE size, former BIGINT;
    DECLARE depth INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR 3698, 3699 SET valid = FALSE;  -- MySQL gives up: some ten thousand texts, and something else amiss

    SET valid = COALESCE(VERSION() NOT LIKE '%MariaDB%' AND JSON_VALID(document), FALSE);
    IF NOT valid AND document NOT REGEXP '[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f]' THEN
        SET body = document;
        CALL jobs__replace_all(body, '\\\\(?:["\\\\/bfnrt]|u[0-9a-fA-F]{4})', '~');
        CALL jobs__replace_all(body, '"[^"\\\\\\x00-\\x1f]*"', CHAR(2 USING utf8mb4));
        CALL jobs__replace_all(body, '-?(?:0|[1-9][0-9]*+)(?:\\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false|null', '0');
        CALL jobs__replace_all(body, '[ \\t\\n\\r]+', '');
        IF body NOT REGEXP '[^\\]\\[{},:0\\x02]' THEN
            SET body = CONCAT('T', REPLACE(REPLACE(body, CONCAT(CHAR(2 USING utf8mb4), ':'), 'K'), CHAR(2 USING utf8mb4), '0'));
            SET size = LENGTH(body);
            REPEAT
                SET former = size;
                SET body = REPLACE(REPLACE(body, 'K0', 'M'), 'T0', 'V');
                REPEAT
                    SET size = LENGTH(body);
                    CALL jobs__replace_all(body, '(?<=0)(?:,0){1,1000}+|(?<=M)(?:,M){1,1000}+', '');
                UNTIL LENGTH(body) = size END REPEAT;
                CALL jobs__replace_all(body, '\\[0?\\]|\\{M?\\}', '0');
                SET size = LENGTH(body);
                SET depth = depth + 1;
            UNTIL size = former OR depth > 100 END REPEAT;
            SET valid = (body = 'V');
        END IF;
    END IF;
END//

-- Whether a JSON text holds \u0000 or half a surrogate pair, which no text can keep. (In JSON every backslash begins an escape, so
-- that taking double ones away from left to right never cuts one in two.)
DROP PROCEDURE IF EXISTS jobs__is_unkept//
CREATE PROCEDURE jobs__is_unkept(value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT unkept BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    SET unkept = LOCATE('\\u', value) > 0
             AND REGEXP_REPLACE(REPLACE(value, '\\\\', '..'), '\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '')
                 REGEXP '\\\\u(0000|[dD][89a-fA-F])';
END//

-- What stands in a JSON object or list, as it was written, with U+0001 in the place of the commas between its members. No JSON holds that
-- character, nor U+0002 and U+0003, behind which escaped backslashes and quotes are hidden meanwhile, so that a quote ends a text. (Two
-- for two: where MariaDB replaces by what is longer or shorter, it moves the rest of the text each time.)
DROP PROCEDURE IF EXISTS jobs__split//
CREATE PROCEDURE jobs__split(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT pieces LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE inner_part, brackets, nested LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

    SET inner_part = document;
    CALL jobs__replace_all(inner_part, '^[ \\t\\n\\r]*+[\\[{][ \\t\\n\\r]*+', '');
    CALL jobs__trim_end(inner_part);
    SET inner_part = LEFT(inner_part, CHAR_LENGTH(inner_part) - 1);
    CALL jobs__trim_end(inner_part);
    SET inner_part = REPLACE(REPLACE(inner_part, '\\\\', CHAR(2, 2 USING utf8mb4)), '\\"', CHAR(3, 3 USING utf8mb4));
    SET brackets = inner_part;
    CALL jobs__replace_all(brackets, '"[^"]*"|[^"\\[\\]{}]+', '');
    SET nested = '';
    WHILE brackets <> '' DO
        CALL jobs__replace_all(brackets, '\\[\\]|\\{\\}', '');
        SET nested = CONCAT('|[\\[{](?:[^"\\[\\]{}]+|"[^"]*"', nested, ')*+[\\]}]');
    END WHILE;
    SET pieces = inner_part;
    CALL jobs__replace_all(
        pieces,
        CONCAT('\\G((?:[^"\\[\\]{},]+|"[^"]*"', nested, ')++),'),
        CONCAT(IF(VERSION() LIKE '%MariaDB%', '\\1', '$1'), CHAR(1 USING utf8mb4)));
    SET pieces = REPLACE(REPLACE(pieces, CHAR(3, 3 USING utf8mb4), '\\"'), CHAR(2, 2 USING utf8mb4), '\\\\');
END//

-- The first of pieces, which is taken off them, without white space around it.
DROP PROCEDURE IF EXISTS jobs__next_piece//
CREATE PROCEDURE jobs__next_piece(INOUT pieces LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT piece LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    SET piece = SUBSTRING_INDEX(pieces, CHAR(1 USING utf8mb4), 1);
    SET pieces = SUBSTRING(pieces, CHAR_LENGTH(piece) + 2);
    SET piece = REGEXP_REPLACE(piece, '^[ \\t\\n\\r]++|[ \\t\\n\\r]++\\z', '');
END//

-- The first member of an object's pieces: its key, and its value as it was written.
DROP PROCEDURE IF EXISTS jobs__next_member//
CREATE PROCEDURE jobs__next_member(INOUT pieces LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE unkept BOOLEAN;
    CALL jobs__next_piece(pieces, value);
    SET member = REGEXP_SUBSTR(value, '^"(?:[^"\\\\]+|\\\\.)*+"');
    SET value = REGEXP_REPLACE(SUBSTRING(value, CHAR_LENGTH(member) + 1), '^[ \\t\\n\\r]*+:[ \\t\\n\\r]*+', '');
    CALL jobs__is_unkept(member, unkept);
    IF NOT unkept THEN  -- such a key stays as it was written, and is none that is looked for
        SET member = JSON_UNQUOTE(member);
    END IF;
END//

-- The members of an options object, as an object of texts: each is the JSON of its value as it was written, for the routines below. A key given
-- twice is refused: readers of JSON do not agree on which of its values counts.
DROP PROCEDURE IF EXISTS jobs__members//
CREATE PROCEDURE jobs__members(document LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, known LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE pieces, member, value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE met LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT '';
    DECLARE plain, valid BOOLEAN;

    SET members = '';
    IF document IS NOT NULL AND document <> '{}' THEN
        -- Nearly all are flat and without escapes: then this is all there is to be seen to, and a quote ends a text.
        SET plain = document REGEXP CONCAT(
            '^\\{(?:[ \\t\\n\\r]*+"[^"\\\\\\x00-\\x1f]*"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+(?:"[^"\\\\\\x00-\\x1f]*"|-?(?:0|[1-9][0-9]*+)(?:\\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+',
            '|true|false|null)[ \\t\\n\\r]*+(?:,(?![ \\t\\n\\r]*+\\})|(?=\\}\\z)))*+\\}\\z');
        IF plain THEN
            SET pieces = SUBSTRING(document, 2);
        ELSE
            CALL jobs__is_json(document, valid);
            IF NOT valid OR document NOT REGEXP '^[ \\t\\n\\r]*+\\{' THEN
                CALL jobs__refuse('PJ003', CONCAT(place, ' is not a JSON object'), 'pass an object such as {} or {"key": "value"}');
            END IF;
            CALL jobs__split(document, pieces);
        END IF;
        WHILE pieces <> '' AND pieces <> '}' DO
            IF plain THEN
                SET value = REGEXP_SUBSTR(pieces, '"[^"]*"[ \\t\\n\\r]*+:[ \\t\\n\\r]*+(?:"[^"]*"|[^",} \\t\\n\\r]++)');
                SET pieces = SUBSTRING(pieces, LOCATE(value, pieces) + CHAR_LENGTH(value) + 1);
                SET member = SUBSTRING_INDEX(SUBSTRING(value, 2), '"', 1);
                SET value = REGEXP_REPLACE(SUBSTRING(value, CHAR_LENGTH(member) + 3), '^[ \\t\\n\\r]*+:[ \\t\\n\\r]*+', '');
            ELSE
                CALL jobs__next_member(pieces, member, value);
            END IF;
            IF NOT FIND_IN_SET(member, REPLACE(known, ', ', ',')) THEN
                CALL jobs__refuse('PJ003', CONCAT(place, ' has no key ', JSON_QUOTE(member)), CONCAT('the keys are ', known));
            ELSEIF FIND_IN_SET(member, met) THEN
                CALL jobs__refuse('PJ003', CONCAT(place, ' has the key ', JSON_QUOTE(member), ' twice'), 'give each key once');
            END IF;
            SET met = CONCAT(met, ',', member);
            SET members = CONCAT(members, ',"', member, '":', JSON_QUOTE(value));
        END WHILE;
    END IF;
    SET members = CONCAT('{', SUBSTRING(members, 2), '}');
END//

-- What follows reads one member, called `place` and its key in messages; one that is absent or null is NULL.

-- The JSON of a member as it was written.
DROP PROCEDURE IF EXISTS jobs__json//
CREATE PROCEDURE jobs__json(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    SET result = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
END//

DROP PROCEDURE IF EXISTS jobs__text//
CREATE PROCEDURE jobs__text(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE unkept BOOLEAN;
    SET value = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
    IF value IS NULL THEN
        SET result = NULL;
    ELSE
        IF LEFT(value, 1) <> '"' THEN
            CALL jobs__refuse('PJ003', CONCAT(place, member, ' is not a text'), 'pass a JSON string');
        END IF;
        IF LOCATE('\\u', value) > 0 THEN
            CALL jobs__is_unkept(value, unkept);
            IF unkept THEN
                CALL jobs__refuse('PJ003', CONCAT(place, member, ' holds a character that cannot be kept'), 'leave out \\u0000 and half surrogate pairs');
            END IF;
        END IF;
        SET result = JSON_UNQUOTE(value);
    END IF;
END//

-- A name, queue, key, tenant or worker that is too long is refused, never cut.
DROP PROCEDURE IF EXISTS jobs__fit//
CREATE PROCEDURE jobs__fit(value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    IF CHAR_LENGTH(value) NOT BETWEEN 1 AND 190 THEN
        CALL jobs__refuse('PJ010', CONCAT(place, ' has ', CHAR_LENGTH(value), ' characters'), 'it must have 1 to 190');
    END IF;
END//

-- A text that fits.
DROP PROCEDURE IF EXISTS jobs__name//
CREATE PROCEDURE jobs__name(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    CALL jobs__text(members, member, place, result);
    IF CHAR_LENGTH(result) NOT BETWEEN 1 AND 190 THEN
        CALL jobs__fit(result, CONCAT(place, member));
    END IF;
END//

-- A list of texts, as the JSON it is.
DROP PROCEDURE IF EXISTS jobs__texts//
CREATE PROCEDURE jobs__texts(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE pieces, piece LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE unkept BOOLEAN;
    DECLARE n INT DEFAULT 0;
    SET result = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
    IF LEFT(result, 1) <> '[' THEN
        CALL jobs__refuse('PJ003', CONCAT(place, member, ' is not a list'), 'pass a JSON array of strings');
    END IF;
    CALL jobs__is_unkept(result, unkept);
    IF unkept OR result NOT REGEXP '^\\[(?:[ \\t\\n\\r]*+"[^"\\\\]*"[ \\t\\n\\r]*+(?:,|(?=\\]\\z)))*+\\]\\z' THEN
        CALL jobs__split(result, pieces);
        WHILE pieces <> '' DO
            CALL jobs__next_piece(pieces, piece);
            CALL jobs__text(JSON_OBJECT('a', piece), 'a', CONCAT(place, member, '[', n, '] of '), piece);
            SET n = n + 1;
        END WHILE;
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs__integer//
CREATE PROCEDURE jobs__integer(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, lowest BIGINT, highest BIGINT, OUT result BIGINT)
SQL SECURITY DEFINER
BEGIN
    DECLARE value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    SET value = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
    SET result = CASE WHEN value REGEXP '^-?[0-9]{1,18}\\z' THEN CAST(value AS SIGNED) END;
    IF value IS NOT NULL AND (result IS NULL OR result NOT BETWEEN lowest AND highest) THEN
        CALL jobs__refuse('PJ003', CONCAT(place, member, ' is not a whole number from ', lowest, ' to ', highest), 'pass a JSON number without a fraction');
    END IF;
END//

-- A duration in milliseconds, at most some 317 years: a moment that far from now is still one that clients can read.
DROP PROCEDURE IF EXISTS jobs__duration//
CREATE PROCEDURE jobs__duration(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, lowest BIGINT, OUT result BIGINT)
SQL SECURITY DEFINER
BEGIN
    CALL jobs__integer(members, member, place, lowest, 10000000000000, result);
END//

DROP PROCEDURE IF EXISTS jobs__number//
CREATE PROCEDURE jobs__number(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, lowest DOUBLE, highest DOUBLE, OUT result DOUBLE)
SQL SECURITY DEFINER
BEGIN
    DECLARE value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    SET value = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
    SET result = CASE WHEN value REGEXP '^-?[0-9]{1,15}(\\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?\\z' THEN value + 0e0 END;
    IF value IS NOT NULL AND (result IS NULL OR result NOT BETWEEN lowest AND highest) THEN
        CALL jobs__refuse('PJ003', CONCAT(place, member, ' is not a number from ', lowest, ' to ', highest), 'pass a JSON number');
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs__boolean//
CREATE PROCEDURE jobs__boolean(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result BOOLEAN)
SQL SECURITY DEFINER
BEGIN
    DECLARE value LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    SET value = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
    IF value NOT IN ('true', 'false') THEN
        CALL jobs__refuse('PJ003', CONCAT(place, member, ' is neither true nor false'), 'pass a JSON true or false');
    END IF;
    SET result = (value = 'true');
END//

-- A UUID that is given as it is, in lower case.
DROP PROCEDURE IF EXISTS jobs__as_uuid//
CREATE PROCEDURE jobs__as_uuid(written LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    IF written NOT REGEXP '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z' THEN
        CALL jobs__refuse('PJ003', CONCAT(place, ' is ', JSON_QUOTE(LEFT(written, 40)), ', which is not a UUID'),
                          'pass a UUID such as "01890a5d-ac96-774b-bcce-b302099a8057"');
    END IF;
    SET result = LOWER(written);
END//

DROP PROCEDURE IF EXISTS jobs__uuid//
CREATE PROCEDURE jobs__uuid(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result CHAR(36) CHARACTER SET ascii COLLATE ascii_bin)
SQL SECURITY DEFINER
BEGIN
    DECLARE written LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    CALL jobs__text(members, member, place, written);
    CALL jobs__as_uuid(written, CONCAT(place, member), result);
END//

-- An ISO 8601 moment with its offset, written in one way only, so that each dialect reads the same ones.
DROP PROCEDURE IF EXISTS jobs__moment//
CREATE PROCEDURE jobs__moment(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE written, fraction, zone LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE away INT;
    DECLARE CONTINUE HANDLER FOR 1292, 1441 SET result = NULL;  -- no such day; out of the calendar

    CALL jobs__text(members, member, place, written);
    SET result = NULL;
    IF written REGEXP CONCAT('^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,9})?)?',
                             '(Z|[-+](0[0-9]|1[0-5]):[0-5][0-9])\\z')
    THEN
        SET zone = REGEXP_SUBSTR(written, '(Z|[-+][0-9:]++)\\z');
        SET away = CASE WHEN zone = 'Z' THEN 0 ELSE CONCAT(LEFT(zone, 1), '1') * (SUBSTRING(zone, 2, 2) * 60 + RIGHT(zone, 2)) END;
        SET written = LEFT(written, CHAR_LENGTH(written) - CHAR_LENGTH(zone));
        SET fraction = RPAD(SUBSTRING(written, 21), 9, '0');
        SET result = CAST(REPLACE(RPAD(LEFT(written, 19), 19, ':00'), 'T', ' ') AS DATETIME(6));
        SET result = TIMESTAMPADD(MICROSECOND, ROUND(fraction / 1000), TIMESTAMPADD(MINUTE, -away, result));
        SET written = CONCAT(written, zone);
    END IF;
    -- A day to spare, so that the moment is within the years 1 to 9999 whatever offset it is shown with.
    IF written IS NOT NULL AND (result IS NULL OR result NOT BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00') THEN
        CALL jobs__refuse('PJ003', CONCAT(place, member, ' is ', JSON_QUOTE(LEFT(written, 40)), ', which is not a moment'),
                          'pass ISO 8601 with an offset, such as "2026-01-31T09:00:00Z"');
    END IF;
END//

-- A moment that is given as it is, in UTC and without saying so, as columns hold it; NULL for anything else.
DROP PROCEDURE IF EXISTS jobs__as_moment//
CREATE PROCEDURE jobs__as_moment(written LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result DATETIME(6))
SQL SECURITY DEFINER
BEGIN
    DECLARE CONTINUE HANDLER FOR 1292 SET result = NULL;
    IF written REGEXP '^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,6})?)?\\z' THEN
        SET result = CAST(REPLACE(written, 'T', ' ') AS DATETIME(6));
    END IF;
END//

DROP PROCEDURE IF EXISTS jobs__object//
CREATE PROCEDURE jobs__object(members LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, member LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, place LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    SET result = NULLIF(JSON_UNQUOTE(JSON_EXTRACT(members, CONCAT('$.', member))), 'null');
    IF LEFT(result, 1) <> '{' THEN
        CALL jobs__refuse('PJ003', CONCAT(place, member, ' is not a JSON object'), 'pass an object such as {}');
    END IF;
END//

-- A setting; NULL where it says null.
DROP PROCEDURE IF EXISTS jobs__setting//
CREATE PROCEDURE jobs__setting(name LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER
BEGIN
    SELECT NULLIF(s.value, 'null') INTO result FROM jobs_settings s WHERE s.name = name;
END//
