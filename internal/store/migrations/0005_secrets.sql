-- Secrets of owners. Their values are nowhere in clear.
CREATE TABLE secrets (
    id     TEXT NOT NULL UNIQUE,
    owner  TEXT NOT NULL,
    name   TEXT NOT NULL,
    sealed BLOB NOT NULL, -- the value, encrypted; it can't be read with another record
    record TEXT NOT NULL, -- what is shown of it, as JSON
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
