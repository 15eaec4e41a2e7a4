//go:build linux

package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The heap that packing holds must not grow with the number of files or levels. A
// single list of names per level is allowed, so directories are of one size here.
func TestPackingHoldsNoMoreForMoreFiles(t *testing.T) {
	if noOpenat2 {
		return // measured already, and no different
	}
	many := func(n int) func(dir string) {
		return func(dir string) {
			for i := range n {
				sub := filepath.Join(dir, fmt.Sprint(i/100))
				if i%100 == 0 {
					must(t, os.Mkdir(sub, 0o755))
				}
				must(t, os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), nil, 0o644))
			}
		}
	}
	deep := func(n int) func(dir string) {
		return func(dir string) { deepTree(t, dir, n, true) }
	}
	held := func(fill func(dir string)) int64 {
		w, dir := newWorkspace(t)
		fill(dir)
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before, most, writes := heap(), int64(0), 0
		report, err := w.PackTar(t.Context(), writerFunc(func(p []byte) (int, error) {
			if writes++; writes%8 == 1 {
				most = max(most, heap())
			}
			return len(p), nil
		}), PackOptions{})
		must(t, err)
		if !report.OK() {
			t.Error(report.Skipped[0])
		}
		must(t, w.RemoveAll("."))
		return most - before
	}
	few, lots := held(many(3000)), held(many(9000))
	flat, low := held(deep(800)), held(deep(5000))
	t.Logf("3000 files %d KiB, 9000 files %d KiB; 800 levels %d KiB, 5000 levels %d KiB", few>>10, lots>>10, flat>>10, low>>10)
	if lots > few+1<<20 {
		t.Errorf("3000 files hold %d bytes, 9000 files %d", few, lots)
	}
	// An open level takes some two hundred bytes, its list of names included.
	if low > flat+2<<20 {
		t.Errorf("800 levels hold %d bytes, 5000 levels %d", flat, low)
	}
}
