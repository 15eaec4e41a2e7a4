//go:build linux

package workspace

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain runs every test twice, with openat2 and with the component walk that
// stands in for it, and fails if a descriptor or a goroutine is left over.
func TestMain(m *testing.M) {
	if role := os.Getenv(helperEnv); role != "" {
		os.Exit(helper(role))
	}
	flag.Parse()
	before, routines := openFDs(), runtime.NumGoroutine()
	once := os.Getenv(onceEnv)
	noOpenat2 = once == "true"
	code := m.Run()
	if code == 0 && !measuring() && once == "" {
		fmt.Println("again, without openat2")
		noOpenat2 = true
		code = m.Run()
	}
	if code == 0 && !measuring() {
		// What tests have left to the collector on purpose is collected first.
		for range 100 {
			runtime.GC()
			runtime.Gosched()
			if len(openFDs()) <= len(before) && runtime.NumGoroutine() <= routines {
				break
			}
		}
		if after := openFDs(); len(after) > len(before) {
			fmt.Printf("descriptors leaked:\nbefore %v\nafter  %v\n", before, after)
			code = 1
		}
		if n := runtime.NumGoroutine(); n > routines {
			fmt.Printf("goroutines leaked: %d before, %d after\n", routines, n)
			code = 1
		}
	}
	os.Exit(code)
}

func measuring() bool {
	for _, name := range []string{"test.bench", "test.fuzz", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return flag.Lookup("test.fuzzworker").Value.String() == "true"
}

func openFDs() []string {
	var open []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.Contains(to, "anon_inode") && !strings.HasSuffix(to, "testlog.txt") {
			open = append(open, e.Name()+"="+to)
		}
	}
	sort.Strings(open)
	return open
}

// newWorkspace opens a fresh directory.
func newWorkspace(t testing.TB) (*Workspace, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ws")
	must(t, os.Mkdir(dir, 0o755))
	return openWorkspace(t, dir), dir
}

func openWorkspace(t testing.TB, dir string) *Workspace {
	t.Helper()
	w, err := Open(dir)
	must(t, err)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plant makes files by host paths, as a guest with full use of its directory would:
// "name/" is a directory, "name->target" a symbolic link, "name|" a FIFO,
// "name=other" a hard link, "name@" a socket, anything else a file holding its own name.
func plant(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		var err error
		at := func(s string) string { return filepath.Join(dir, s) }
		if name, target, ok := strings.Cut(n, "->"); ok {
			must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
			err = os.Symlink(target, at(name))
		} else if name, other, ok := strings.Cut(n, "="); ok {
			must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
			err = os.Link(at(other), at(name))
		} else if name, ok := strings.CutSuffix(n, "/"); ok {
			err = os.MkdirAll(at(name), 0o755)
		} else if name, ok := strings.CutSuffix(n, "|"); ok {
			must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
			err = unix.Mkfifo(at(name), 0o644)
		} else if name, ok := strings.CutSuffix(n, "@"); ok {
			must(t, os.MkdirAll(filepath.Dir(at(name)), 0o755))
			err = unix.Mknod(at(name), unix.S_IFSOCK|0o644, 0)
		} else {
			must(t, os.MkdirAll(filepath.Dir(at(n)), 0o755))
			err = os.WriteFile(at(n), []byte(n), 0o644)
		}
		must(t, err)
	}
}

// plantDevice makes a character device, /dev/null's twin, or skips where only real root may.
func plantDevice(t testing.TB, dir, name string) {
	t.Helper()
	if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		needed(t, "mknod of a device: "+err.Error())
	}
}

// needed skips a test that this machine cannot run; the continuous integration has no such excuse.
func needed(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("cannot run in CI: " + what)
	}
	t.Skip(what)
}

// outside makes a directory beside the workspace with a secret in it.
const secret = "TOP-SECRET-OUTSIDE"

func outside(t testing.TB, dir string) string {
	t.Helper()
	out := filepath.Join(filepath.Dir(dir), "outside")
	must(t, os.MkdirAll(out, 0o755))
	must(t, os.WriteFile(filepath.Join(out, "secret"), []byte(secret), 0o644))
	return out
}

func intact(t testing.TB, out string) {
	t.Helper()
	entries, err := os.ReadDir(out)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("something was created or removed outside: %v", entries)
	}
	data, err := os.ReadFile(filepath.Join(out, "secret"))
	if err != nil || string(data) != secret {
		t.Errorf("the file outside is %q, %v", data, err)
	}
}
