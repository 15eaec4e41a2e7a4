package checkpoint

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Keys lists the keys of the checkpoints in a store, in any order.
func Keys(ctx context.Context, store Store) ([]string, error) {
	var keys []string
	for o, err := range store.List(ctx, manifestPrefix) {
		if err != nil {
			return nil, err
		}
		key, err := url.PathUnescape(strings.TrimPrefix(o.Name, manifestPrefix))
		if err != nil {
			return nil, fmt.Errorf("checkpoint: object %q in the store is not one of ours: %w", o.Name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Delete removes a checkpoint; it is no error if there is none. The contents that no
// other checkpoint shares stay until [Prune].
func Delete(ctx context.Context, store Store, key string) error {
	name, err := keyName(key)
	if err != nil {
		return err
	}
	return store.Delete(ctx, name)
}

// Prune deletes the packs that no checkpoint uses and that are older than that, and
// returns how many they were. The age protects a Save that is under way, which has stored packs but
// not yet its manifest: a day is a good choice. It does not protect a Save whose base is deleted
// meanwhile. If a manifest cannot be read nothing is deleted.
func Prune(ctx context.Context, store Store, olderThan time.Duration) (deleted int, err error) {
	// Packs are listed first, so all that a manifest seen later refers to is older than the list.
	var candidates []string
	for o, err := range store.List(ctx, packPrefix) {
		if err != nil {
			return 0, err
		}
		if time.Since(o.ModTime) > olderThan {
			candidates = append(candidates, o.Name)
		}
	}
	keys, err := Keys(ctx, store)
	if err != nil {
		return 0, err
	}
	used := map[string]bool{}
	for _, key := range keys {
		m, err := readManifest(ctx, store, key)
		if err != nil {
			return 0, err
		}
		for _, p := range m.packs {
			used[p.name()] = true
		}
	}
	for _, name := range candidates {
		if used[name] {
			continue
		}
		if err := store.Delete(ctx, name); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}
