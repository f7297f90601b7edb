package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// PutSecrets records secrets, all or none, each in place of the one that its owner
// had of that name.
func (s *Store) PutSecrets(ctx context.Context, all ...sandbox.SealedSecret) error {
	return s.write(ctx, "record a secret", func(t tx) error {
		for _, v := range all {
			record, err := json.Marshal(v.Secret)
			if err != nil {
				return fmt.Errorf("encode a secret: %w", err)
			}
			err = t.exec("INSERT OR REPLACE INTO secrets (id, owner, name, sealed, record) VALUES (?, ?, ?, ?, ?)",
				v.ID, v.Owner, v.Name, v.Sealed, string(record))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Secrets returns the secrets of all owners, by owner and name.
func (s *Store) Secrets(ctx context.Context) ([]sandbox.SealedSecret, error) {
	var all []sandbox.SealedSecret
	err := query(ctx, s.r, func(scan func(...any) error) error {
		var v sandbox.SealedSecret
		var record string
		if err := scan(&v.Sealed, &record); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(record), &v.Secret); err != nil {
			return fmt.Errorf("decode a secret: %w: %w", err, errdefs.ErrDataLoss)
		}
		all = append(all, v)
		return nil
	}, "SELECT sealed, record FROM secrets ORDER BY owner, name")
	if err != nil {
		return nil, fmt.Errorf("read the secrets: %w", classify(err))
	}
	return all, nil
}

// DeleteSecret removes a secret, if there is one.
func (s *Store) DeleteSecret(ctx context.Context, id string) error {
	return s.write(ctx, "remove a secret", func(t tx) error {
		return t.exec("DELETE FROM secrets WHERE id = ?", id)
	})
}
