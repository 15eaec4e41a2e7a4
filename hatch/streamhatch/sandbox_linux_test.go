package streamhatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	postern "github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
)

// Promises 177, 179, 202: a guest of a hatch with this name finds a plain socket
// and needs nothing to reach it.
func TestGuestFindsTheSocket(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := newSandbox(t, postern.Profile{}, named(t, "one", Exec("echo", "first")), named(t, "two_2", Exec("echo", "second")))
		got := mustBash(t, s, `stat -c %F $POSTERN_HATCH_ONE $POSTERN_HATCH_TWO_2
echo $POSTERN_HATCH_ONE $POSTERN_HATCH_TWO_2
$POSTERN_CONNECT $POSTERN_HATCH_ONE; $POSTERN_CONNECT $POSTERN_HATCH_TWO_2
python3 -c 'import os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["POSTERN_HATCH_ONE"]); print(s.recv(100))'
ls /run/postern`)
		if want := "socket\nsocket\n/run/postern/one.sock /run/postern/two_2.sock\nfirst\nsecond\nb'first\\n'\nconnect\none.sock\ntwo_2.sock"; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	})
}

// Promise 182: without a hatch nothing tells of one.
func TestWithoutAHatch(t *testing.T) {
	s := newSandbox(t, postern.Profile{})
	if got := mustBash(t, s, "env | grep -c POSTERN || true; ls /run 2>/dev/null || true"); got != "0" {
		t.Error(got)
	}
}

// The connector needs nothing of the guest's root: neither a shell nor a C
// library. The guest here has no file but the ones of postern's own.
func TestConnectorNeedsNoFiles(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "usr"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := newSandbox(t, postern.Profile{Rootfs: root}, named(t, "one", Exec("echo", "hello")))
		r, err := s.Run(context.Background(), "/run/postern/connect", hatch.GuestPath("one"))
		if err != nil || string(r.Stdout) != "hello\n" || !r.OK() {
			t.Errorf("%v, %+v: %s%s", err, r.ExitCode, r.Stdout, r.Stderr)
		}
		// The control: there is no shell.
		if r, err := s.Run(context.Background(), "/bin/sh", "-c", "true"); err != nil || r.ExitCode != 127 {
			t.Errorf("%v, %d", err, r.ExitCode)
		}
	})
}

// Promise 181: every way to run something serves every hatch.
func TestEveryEntrypoint(t *testing.T) {
	ctx := context.Background()
	s := newSandbox(t, postern.Profile{}, named(t, "one", Exec("echo", "first")), named(t, "two", Exec("echo", "second")))
	const (
		script = "$POSTERN_CONNECT $POSTERN_HATCH_ONE; $POSTERN_CONNECT $POSTERN_HATCH_TWO"
		code   = "import os, subprocess\nfor n in ('ONE', 'TWO'):\n  subprocess.run([os.environ['POSTERN_CONNECT'], os.environ['POSTERN_HATCH_' + n]], check=True)"
	)
	for name, run := range map[string]func() (postern.Result, error){
		"Run":         func() (postern.Result, error) { return s.Run(ctx, "sh", "-c", script) },
		"RunBash":     func() (postern.Result, error) { return s.RunBash(ctx, script) },
		"RunPython":   func() (postern.Result, error) { return s.RunPython(ctx, code) },
		"Start":       func() (postern.Result, error) { return collect(s.Start(ctx, "sh", "-c", script)) },
		"StartBash":   func() (postern.Result, error) { return collect(s.StartBash(ctx, script)) },
		"StartPython": func() (postern.Result, error) { return collect(s.StartPython(ctx, code)) },
	} {
		if r, err := run(); err != nil || string(r.Stdout) != "first\nsecond\n" {
			t.Errorf("%s: %v, %d: %s%s", name, err, r.ExitCode, r.Stdout, r.Stderr)
		}
	}
}

func collect(p *postern.Process, err error) (postern.Result, error) {
	if err != nil {
		return postern.Result{}, err
	}
	defer p.Close()
	return p.Communicate(context.Background())
}

// Promises 183, 184: a hatch serves while a run goes on, and its connections end
// with that. In between it is there, and serves nobody.
func TestServesDuringRuns(t *testing.T) {
	h := named(t, "one", shell("echo up; exec sleep 7777"))
	s := newSandbox(t, postern.Profile{}, h)
	p, err := s.StartBash(context.Background(), "exec sleep 7777")
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, h)
	expect(t, c, "up\n")
	p.Close()
	over(c)
	if _, err := os.Lstat(h.SocketPath()); err != nil {
		t.Error(err)
	}
	if r := bash(t, s, "exec 3< <($POSTERN_CONNECT $POSTERN_HATCH_ONE); read line <&3; echo $line"); string(r.Stdout) != "up\n" {
		t.Errorf("the next run: %s%s", r.Stdout, r.Stderr)
	}
	h.Close()
	if _, err := s.RunBash(context.Background(), "true"); !errors.Is(err, hatch.ErrClosed) {
		t.Errorf("a run after Close: %v", err)
	}
}

// Escapes, hatch lifetime: a guest's daemon that keeps its stream open when the
// main program exits is gone, and the stream's command with it.
func TestDaemonInTheGuest(t *testing.T) {
	h := named(t, "one", shell("echo up; cat >/dev/null; echo end of input >&2"))
	s := newSandbox(t, postern.Profile{}, h)
	if got := mustBash(t, s, `setsid sh -c 'sleep 7777 | $POSTERN_CONNECT $POSTERN_HATCH_ONE > out' & until grep -q up out 2>/dev/null; do :; done; echo started`); got != "started" {
		t.Error(got)
	}
	h.Close() // returns when the command has ended
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.conns) != 0 {
		t.Errorf("%d connections are left", len(h.conns))
	}
}

// Promises 186, 187, 188: where the socket is and what becomes of it.
func TestSocketFile(t *testing.T) {
	old := unix.Umask(0o777)
	h, err := New(Exec("cat"), Config{Name: "one"})
	unix.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(h.SocketPath())
	for path, want := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, h.SocketPath(): fs.ModeSocket | 0o666} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if filepath.Base(h.SocketPath()) != "one.sock" || !strings.HasPrefix(filepath.Base(dir), "postern-") {
		t.Errorf("the socket is %s", h.SocketPath())
	}
	h.Close()
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}

	own := testutil.NobodyDir(t) // short
	path := filepath.Join(own, "s")
	h, err = New(Exec("cat"), Config{SocketPath: path})
	if err != nil {
		t.Fatal(err)
	}
	if h.SocketPath() != path {
		t.Errorf("the socket is %s, want %s", h.SocketPath(), path)
	}
	dial(t, h)
	h.Close()
	if left, err := os.ReadDir(own); err != nil || len(left) != 0 {
		t.Errorf("a directory of the caller's has %v, %v", left, err)
	}
}
