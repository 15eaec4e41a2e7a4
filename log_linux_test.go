package postern

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/hatch"
	"golang.org/x/sys/unix"
)

// Promises 225 to 229, 233: silent unless asked; the guest drives nothing
// above DEBUG; hatches log their start and stop themselves.
func TestLogLevels(t *testing.T) {
	var b lockedBuffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo}))
	h, err := hatch.NewSocket(hatch.SocketConfig{MaxConns: 1, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s := sandbox(t, Profile{}, WithLogger(log), WithHatch(h))
	run(t, s, Bash("echo 'level=ERROR forged' >&2; exit 5"))
	run(t, s, Command{Args: []string{"no\nsuch"}})
	if lines := strings.Count(b.String(), "\n"); lines != 4 || strings.Count(b.String(), "level=INFO") != 4 {
		t.Errorf("two runs with a hatch log %d lines at INFO:\n%s", lines, b.String())
	}
	var d lockedBuffer
	s = sandbox(t, Profile{}, WithLogger(slog.New(slog.NewTextHandler(&d, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	run(t, s, Bash("exit 5"))
	if got := d.String(); !strings.Contains(got, "run started") || !strings.Contains(got, "status=5") || strings.Count(got, "level=DEBUG") != strings.Count(got, "\n") || !strings.Contains(got, "logger=postern") {
		t.Errorf("at DEBUG:\n%s", got)
	}
}

// Promise 226, 231: a workspace that cannot be removed is a warning about the
// host, in which what the guest chose is escaped.
func TestLogOfAWorkspaceThatStays(t *testing.T) {
	asRoot(t)
	var b bytes.Buffer
	s, err := New(Profile{}, WithLogger(slog.New(slog.NewTextHandler(&b, nil))))
	if err != nil {
		t.Fatal(err)
	}
	const evil = "x\nlevel=ERROR msg=forged"
	run(t, s, Command{Args: []string{"mkdir", evil}})
	target := filepath.Join(s.Workspace(), evil)
	mount(t, target)
	if err := s.Close(); err == nil {
		t.Error("it was removed")
	}
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") {
		t.Errorf("log:\n%s", got)
	}
	unmount(t, target)
	os.RemoveAll(s.Workspace())
}

// Promise 225: nothing anywhere by default.
func TestSilentByDefault(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stderr, logger := os.Stderr, slog.Default()
	os.Stderr = w
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
	s, err := New(Profile{})
	if err == nil {
		s.Run(context.Background(), "false")
		err = s.Close()
	}
	os.Stderr = stderr
	slog.SetDefault(logger)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := io.ReadAll(r); len(out) > 0 {
		t.Errorf("it says %q", out)
	}
}

func mount(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
}

func unmount(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}
