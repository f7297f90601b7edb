CREATE TABLE volumes (
    id      TEXT PRIMARY KEY,
    owner   TEXT NOT NULL,
    name    TEXT NOT NULL,
    state   TEXT NOT NULL,
    size    INTEGER NOT NULL, -- bytes
    created INTEGER NOT NULL,
    record  TEXT NOT NULL, -- the rest of it, as JSON
    UNIQUE (owner, name)
) STRICT, WITHOUT ROWID;
