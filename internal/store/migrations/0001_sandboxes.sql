-- Times are nanoseconds since 1970 in UTC, 0 for none. Durations are
-- nanoseconds, -1 for never. JSON holds what no query looks into.

CREATE TABLE sandboxes (
    uid           TEXT PRIMARY KEY,
    owner         TEXT NOT NULL,
    status        TEXT NOT NULL,
    last_activity INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    record        TEXT NOT NULL -- the rest of it, as JSON
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_owner ON sandboxes (owner);

-- Every id by which a sandbox can be found, in all its forms.
CREATE TABLE ids (
    uid   TEXT NOT NULL REFERENCES sandboxes (uid) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    kind  TEXT NOT NULL, -- short, label, name, or a door's own
    value TEXT NOT NULL,
    UNIQUE (owner, kind, value)
) STRICT;
CREATE INDEX ids_uid ON ids (uid);
CREATE INDEX ids_value ON ids (value);
-- Those that agentbox draws are unique among all owners.
CREATE UNIQUE INDEX ids_drawn ON ids (value) WHERE kind IN ('short', 'label');

CREATE TABLE tombstones (
    uid       TEXT PRIMARY KEY,
    owner     TEXT NOT NULL,
    destroyed INTEGER NOT NULL,
    record    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_destroyed ON tombstones (destroyed);

CREATE TABLE tombstone_ids (
    uid   TEXT NOT NULL REFERENCES tombstones (uid) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (owner, value, uid)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstone_ids_uid ON tombstone_ids (uid);

-- The events of a sandbox stay as long as its tombstone.
CREATE TABLE events (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    uid    TEXT NOT NULL,
    owner  TEXT NOT NULL,
    time   INTEGER NOT NULL,
    type   TEXT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX events_uid ON events (uid, seq);

CREATE TABLE idempotency (
    owner   TEXT NOT NULL,
    key     TEXT NOT NULL,
    request BLOB NOT NULL, -- hash of what was asked for
    uid     TEXT NOT NULL, -- what came of it
    created INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_created ON idempotency (created);
CREATE INDEX idempotency_uid ON idempotency (uid);
