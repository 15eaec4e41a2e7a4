//go:build linux

package mounts_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	guest.Main()
	os.Exit(testutil.Main(m))
}

func ptr[T any](v T) *T { return &v }

// tree makes files below a new directory: a name that ends with a slash is a
// directory, "a -> b" is a symbolic link, and anything else is a file that
// contains its own name.
func tree(t testing.TB, names ...string) string {
	t.Helper()
	top := t.TempDir()
	for _, n := range names {
		var err error
		link, target, isLink := cut(n, " -> ")
		path := filepath.Join(top, link)
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case n[len(n)-1] == '/':
			err = os.MkdirAll(path, 0o755)
		default:
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.WriteFile(path, []byte(n+"\n"), 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return top
}

func cut(s, sep string) (before, after string, ok bool) {
	for i := range len(s) - len(sep) + 1 {
		if s[i:i+len(sep)] == sep {
			return s[:i], s[i+len(sep):], true
		}
	}
	return s, "", false
}

// files lists what is below a directory, links with their targets.
func files(t testing.TB, top string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		name, _ := filepath.Rel(top, path)
		if target, err := os.Readlink(path); err == nil {
			name += " -> " + target
		} else if d.IsDir() {
			name += "/"
		}
		found = append(found, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// wantFailure launches a guest whose file system cannot be built.
func wantFailure(t *testing.T, step string, errno unix.Errno, ops ...mounts.Op) *nsexec.StartError {
	t.Helper()
	var se *nsexec.StartError
	r, err := guest.Try(guest.Shell("echo ran", ops...))
	switch {
	case err == nil:
		t.Errorf("%v launched: %+v", ops, r)
	case !errors.As(err, &se):
		t.Errorf("%v: error %v", ops, err)
	case step != "" && se.Step != step || se.Errno != errno:
		t.Errorf("%v: %v, want %q and %v", ops, err, step, errno)
	}
	if se == nil {
		return &nsexec.StartError{}
	}
	return se
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
