-- What owners set for themselves, as texts that the doors understand.
CREATE TABLE settings (
    owner TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
