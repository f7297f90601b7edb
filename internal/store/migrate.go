package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/containerd/errdefs"
)

// migrations make the schema, one version after the other: the file number n
// makes version n of n−1. They never change once they were released.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema to the version of this program.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted by name
	if err != nil {
		return err
	}
	var have int
	if err := s.w.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("read the version of the data: %w", classify(err))
	}
	if have > len(files) {
		return fmt.Errorf("the data was written by a newer agentbox (version %d of the data, this program knows %d): run that version, or restore a backup of before the upgrade: %w",
			have, len(files), errdefs.ErrFailedPrecondition)
	}
	for i, name := range files[have:] {
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			return err
		}
		err = s.write(ctx, "migrate the data by "+name, func(t tx) error {
			if err := t.exec(string(text)); err != nil {
				return err
			}
			return t.exec(fmt.Sprintf("PRAGMA user_version = %d", have+i+1))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
