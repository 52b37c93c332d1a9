-- Numbers of the quarantine are never given again: who clears what a list showed must not clear what came since.

ALTER TABLE store ADD COLUMN next_aside INTEGER NOT NULL DEFAULT 1;
UPDATE store SET next_aside = (SELECT coalesce(max(seq), 0) + 1 FROM quarantine);
