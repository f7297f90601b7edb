-- API keys. The secret itself is nowhere.
CREATE TABLE keys (
    id      TEXT PRIMARY KEY,
    owner   TEXT NOT NULL,
    name    TEXT NOT NULL,
    admin   INTEGER NOT NULL, -- 0 or 1
    hash    BLOB NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    revoked INTEGER NOT NULL -- 0: not
) STRICT, WITHOUT ROWID;
