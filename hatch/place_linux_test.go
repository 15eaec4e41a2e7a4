package hatch

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

func newSocket(t *testing.T, cfg SocketConfig) *Socket {
	t.Helper()
	hatchtest.NoLeaks(t)
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 8
	}
	s, err := NewSocket(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// refused makes a socket that must not come about, and returns the error.
func refused(t *testing.T, path string) error {
	t.Helper()
	hatchtest.NoLeaks(t)
	s, err := NewSocket(SocketConfig{Path: path, MaxConns: 1})
	if err == nil {
		s.Close()
		t.Fatalf("a socket was made at %s", path)
	}
	return err
}

// shortDir is a directory with a path short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func TestSocketIsInAPrivateDirectory(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o777} {
		old := unix.Umask(umask)
		s := newSocket(t, SocketConfig{Name: "repo"})
		unix.Umask(old)
		dir, base := filepath.Split(s.SocketPath())
		dir = filepath.Clean(dir)
		if base != "repo.sock" || !strings.HasPrefix(filepath.Base(dir), "postern-") {
			t.Errorf("the socket is at %s", s.SocketPath())
		}
		if got, want := mode(t, s.SocketPath()), os.ModeSocket|0o666; got != want {
			t.Errorf("umask %03o: mode of the socket is %v, want %v", umask, got, want)
		}
		if got, want := mode(t, dir), os.ModeDir|0o700; got != want {
			t.Errorf("umask %03o: mode of the directory is %v, want %v", umask, got, want)
		}
		if got := unix.Umask(old); got != old {
			t.Errorf("the umask was changed to %03o", got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		absent(t, dir)
	}
}

func TestSocketIsWhereTheCallerWantsIt(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "my.sock")
	s := newSocket(t, SocketConfig{Path: path})
	if s.SocketPath() != path || s.Addr().String() != path {
		t.Errorf("the socket is at %s (%s), want %s", s.SocketPath(), s.Addr(), path)
	}
	if got, want := mode(t, path), os.ModeSocket|0o666; got != want {
		t.Errorf("mode %v, want %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	absent(t, path)
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the caller's directory went too: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestRelativePathIsMadeAbsolute(t *testing.T) {
	dir := shortDir(t)
	t.Chdir(dir)
	s := newSocket(t, SocketConfig{Path: "my.sock"})
	t.Chdir("/")
	if want := filepath.Join(dir, "my.sock"); s.SocketPath() != want {
		t.Errorf("path %s, want %s", s.SocketPath(), want)
	}
	s.Close()
	absent(t, s.SocketPath())
}

func TestSocketPathLength(t *testing.T) {
	dir := shortDir(t)
	// The longest possible: a directory that fills up to a short name.
	sub := filepath.Join(dir, strings.Repeat("d", MaxPath-len(dir)-len("/")-len("/s")))
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	longest := filepath.Join(sub, "s")
	if len(longest) != MaxPath {
		t.Fatalf("the test made a path of %d bytes", len(longest))
	}
	s := newSocket(t, SocketConfig{Path: longest})
	conn, err := net.Dial("unix", longest)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	s.Close()

	for _, path := range []string{longest + "x", filepath.Join("/tmp", strings.Repeat("n", MaxPath-len("/tmp/")))} {
		err := refused(t, path)
		if !errors.Is(err, ErrPathTooLong) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "at most") {
			t.Errorf("the error for a path of %d bytes is %v", len(path), err)
		}
		absent(t, path)
	}

	t.Setenv("TMPDIR", sub)
	if err := refused(t, ""); !errors.Is(err, ErrPathTooLong) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("the error for a long TMPDIR is %v", err)
	}
	if left, _ := os.ReadDir(sub); len(left) != 0 {
		t.Errorf("left behind in TMPDIR: %v", left)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	// As long as somebody listens, it is not stale.
	if err := refused(t, path); !errors.Is(err, ErrInUse) {
		t.Errorf("the error for a socket in use is %v", err)
	}
	stale.Close()
	s := newSocket(t, SocketConfig{Path: path})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	s.Close()
	absent(t, path)
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	dir := shortDir(t)
	for name, place := range map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o700) },
		"link": func(path string) error { return os.Symlink(filepath.Join(dir, "target"), path) },
		"fifo": func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		path := filepath.Join(dir, name)
		if err := place(path); err != nil {
			t.Fatal(err)
		}
		before := mode(t, path)
		err := refused(t, path)
		if se := new(SocketError); !errors.Is(err, ErrInUse) || !errors.As(err, &se) || se.Path != path {
			t.Errorf("%s: error %v", name, err)
		}
		if after := mode(t, path); after != before {
			t.Errorf("%s: mode was %v, is %v", name, before, after)
		}
	}
	absent(t, filepath.Join(dir, "target"))
}

func TestMissingDirectory(t *testing.T) {
	err := refused(t, filepath.Join(shortDir(t), "no", "s"))
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "directory") {
		t.Errorf("error %v", err)
	}
}

func TestCloseRemovesItsOwnSocketOnly(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	s := newSocket(t, SocketConfig{Path: path})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed another's socket: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []SocketConfig{
		{Name: "hatch", MaxConns: 1},
		{MaxConns: 0},
		{MaxConns: -1},
		{MaxConns: 1, Backlog: -1},
	} {
		if s, err := NewSocket(cfg); err == nil {
			s.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
}
