// Package hatchtest has what the tests of the hatches share.
package hatchtest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must come, before it fails.
const patience = 20 * time.Second

// Eventually waits for a condition that no event announces.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// Descriptors is how many this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Heap is how many bytes are in use after a collection.
func Heap() int {
	runtime.GC()
	runtime.GC() // what finalizers and pools of the first one let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// NoLeaks fails the test if, after its other cleanups, the process has more
// descriptors or goroutines than now.
func NoLeaks(t testing.TB) {
	t.Helper()
	descriptors, goroutines := Descriptors(t), runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			d, g := Descriptors(t), runtime.NumGoroutine()
			if d <= descriptors && g <= goroutines {
				return
			}
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<16)
				t.Errorf("%d descriptors and %d goroutines at the start, %d and %d at the end:\n%s",
					descriptors, goroutines, d, g, stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// Log keeps what is logged.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Logger logs to l, from level on.
func (l *Log) Logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// Entries returns the entries of a level, each one a line.
func (l *Log) Entries(t testing.TB, level slog.Level) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var entries []map[string]any
	for line := range bytes.Lines(l.buf.Bytes()) {
		var entry map[string]any
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatalf("a line of the log is not an entry: %q: %v", line, err)
		}
		if entry["level"] == level.String() {
			entries = append(entries, entry)
		}
	}
	return entries
}
