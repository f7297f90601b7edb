package store

import (
	"context"
	"fmt"
)

// Setting is what an owner set under a name; empty: nothing.
func (s *Store) Setting(ctx context.Context, owner, name string) (value string, err error) {
	err = query(ctx, s.r, func(scan func(...any) error) error { return scan(&value) },
		"SELECT value FROM settings WHERE owner = ? AND name = ?", owner, name)
	if err != nil {
		return "", fmt.Errorf("read a setting: %w", classify(err))
	}
	return value, nil
}

// SetSetting sets what an owner wants under a name.
func (s *Store) SetSetting(ctx context.Context, owner, name, value string) error {
	return s.write(ctx, "record a setting", func(t tx) error {
		return t.exec("INSERT INTO settings (owner, name, value) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", owner, name, value)
	})
}
