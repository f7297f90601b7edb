-- API keys, without their secrets. A revoked key stays, so that lists and the
-- audit log can name it.
CREATE TABLE api_keys (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were made
    id      TEXT NOT NULL UNIQUE,
    owner   TEXT NOT NULL,
    name    TEXT NOT NULL,
    admin   INTEGER NOT NULL,
    hash    BLOB NOT NULL UNIQUE, -- SHA-256 of the secret digits
    created INTEGER NOT NULL,
    revoked INTEGER NOT NULL
) STRICT;
