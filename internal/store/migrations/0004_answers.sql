ALTER TABLE idempotency ADD COLUMN begun INTEGER NOT NULL DEFAULT 0; -- 1: what was asked for was begun, as uid tells
ALTER TABLE idempotency ADD COLUMN answer BLOB; -- what it was answered with, if that is kept
