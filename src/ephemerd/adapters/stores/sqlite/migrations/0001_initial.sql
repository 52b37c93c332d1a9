-- The first version of the store. A file here is never changed once released; the next one follows it.
-- Everything is kept as JSON text that the store does not look into, beside the columns that queries need.

PRAGMA application_id = 1701865572; -- "ephd"

CREATE TABLE schema_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- One row: who this store is, and where writing goes on. The clock is (ms, boot id, monotonic ms).
CREATE TABLE store (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    id TEXT NOT NULL,
    segment INTEGER NOT NULL DEFAULT 0,
    next_seq INTEGER NOT NULL DEFAULT 1,
    clock_now INTEGER,
    clock_boot TEXT,
    clock_monotonic INTEGER
);

-- The state: what `load` reads.
CREATE TABLE record (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

-- Delivery ids that were handled; `seen` is the shell time, by which they are pruned.
CREATE TABLE delivery (
    forge TEXT NOT NULL,
    id TEXT NOT NULL,
    seen INTEGER NOT NULL,
    PRIMARY KEY (forge, id)
) WITHOUT ROWID;
CREATE INDEX delivery_seen ON delivery (seen);

-- A segment of the journal holds the entries from `first_seq` to the next segment's, so that an old one is
-- pruned by a range of `seq`. Segment 0 starts from the empty store.
CREATE TABLE segment (
    number INTEGER PRIMARY KEY,
    rules TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    first_seq INTEGER NOT NULL
);
INSERT INTO segment (number, rules, checkpoint, first_seq) VALUES (0, '', '{}', 1);

CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL,
    now INTEGER NOT NULL,
    event TEXT NOT NULL,
    commands TEXT NOT NULL
);

-- Which runner ids and job keys an entry concerns. `last` is the newest entry of a subject.
CREATE TABLE subject (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    last INTEGER NOT NULL
);
CREATE TABLE journal_subject (
    subject INTEGER NOT NULL REFERENCES subject (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    PRIMARY KEY (subject, seq)
) WITHOUT ROWID;

CREATE TABLE decision (
    id INTEGER PRIMARY KEY,
    runner TEXT NOT NULL,
    outcome TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX decision_runner ON decision (runner, id);
CREATE INDEX decision_outcome ON decision (outcome, id);

-- What could not be handled, with its raw body.
CREATE TABLE quarantine (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    forge TEXT NOT NULL,
    delivery TEXT NOT NULL,
    body BLOB NOT NULL,
    error TEXT NOT NULL
);
