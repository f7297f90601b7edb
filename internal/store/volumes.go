package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// AddVolume records a volume; AlreadyExists if its owner has one of that name.
func (s *Store) AddVolume(ctx context.Context, v sandbox.Volume) error {
	record, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a volume: %w", err)
	}
	return s.write(ctx, "record volume "+v.Name, func(t tx) error {
		return t.exec("INSERT INTO volumes (id, owner, name, state, size, created, record) VALUES (?, ?, ?, ?, ?, ?, ?)",
			v.ID, v.Owner, v.Name, string(v.State), v.Size, nanos(v.Created), string(record))
	})
}

// SetVolumeState changes a volume's state; NotFound if there is none.
func (s *Store) SetVolumeState(ctx context.Context, id string, state sandbox.VolumeState) error {
	return s.write(ctx, "record the state of a volume", func(t tx) error {
		res, err := t.ExecContext(t.ctx, "UPDATE volumes SET state = ? WHERE id = ?", string(state), id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return fmt.Errorf("no such volume: %w", errdefs.ErrNotFound)
		}
		return nil
	})
}

// Volume finds an owner's volume in any state; NotFound if there is none.
func (s *Store) Volume(ctx context.Context, owner, name string) (sandbox.Volume, error) {
	all, err := s.volumes(ctx, "WHERE owner = ? AND name = ?", owner, name)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no such volume: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return sandbox.Volume{}, err
	}
	return all[0], nil
}

// Volumes lists the volumes of an owner, or of all if owner is empty, in any
// state, by owner and name.
func (s *Store) Volumes(ctx context.Context, owner string) ([]sandbox.Volume, error) {
	return s.volumes(ctx, "WHERE ?1 = '' OR owner = ?1 ORDER BY owner, name", owner)
}

func (s *Store) volumes(ctx context.Context, where string, args ...any) ([]sandbox.Volume, error) {
	var all []sandbox.Volume
	err := query(ctx, s.r, func(scan func(...any) error) error {
		var v sandbox.Volume
		var record, state string
		if err := scan(&state, &record); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(record), &v); err != nil {
			return fmt.Errorf("decode a volume: %w", err)
		}
		v.State = sandbox.VolumeState(state)
		all = append(all, v)
		return nil
	}, "SELECT state, record FROM volumes "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read the volumes: %w", classify(err))
	}
	return all, nil
}

// DeleteVolume removes a volume's record, if there is one.
func (s *Store) DeleteVolume(ctx context.Context, id string) error {
	return s.write(ctx, "remove the record of a volume", func(t tx) error {
		return t.exec("DELETE FROM volumes WHERE id = ?", id)
	})
}
