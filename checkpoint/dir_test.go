//go:build linux

package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/checkpoint"
	"github.com/populationgenomics/postern-go/checkpoint/storetest"
)

func TestDirStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) checkpoint.Store {
		d, err := checkpoint.OpenDir(filepath.Join(t.TempDir(), "new", "store"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	})
	t.Run("leftovers are invisible, and cleaned", func(t *testing.T) {
		dir := t.TempDir()
		d, err := checkpoint.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		left := filepath.Join(dir, ".tmp-left")
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for o := range d.List(t.Context(), "") {
			t.Errorf("lists %v", o)
		}
		if err := d.Clean(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(left); err != nil {
			t.Error("a young one was removed")
		}
		if err := d.Clean(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(left); err == nil {
			t.Error("still there")
		}
	})
}
