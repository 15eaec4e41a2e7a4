//go:build linux

package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWalk252(t *testing.T) {
	w, dir := newWorkspace(t)
	out := outside(t, dir)
	plant(t, dir, "b/y", "b/x/z", "a", "c/", "l->"+out, "b/l->x", "p|", "a-b", "a.b/f", "\xff\xfe")
	var got, dirs []string
	for e, err := range w.Walk(".") {
		must(t, err)
		got = append(got, e.Path())
		if e.IsDir() {
			dirs = append(dirs, e.Path())
		}
		info, err := e.Info()
		must(t, err)
		if info.Name() != e.Name() || info.Mode().Type() != e.Type() {
			t.Errorf("%s: %v", e.Path(), info)
		}
	}
	want := []string{"a", "a-b", "a.b", "a.b/f", "b", "b/l", "b/x", "b/x/z", "b/y", "c", "l", "p", "\xff\xfe"}
	if !slices.Equal(got, want) {
		t.Errorf("walk  %q\nwant %q", got, want)
	}
	if want := []string{"a.b", "b", "b/x", "c"}; !slices.Equal(dirs, want) {
		t.Errorf("directories %q, want %q", dirs, want)
	}

	t.Run("from a subdirectory, with SkipDir and break", func(t *testing.T) {
		var got []string
		for e, err := range w.Walk("b") {
			must(t, err)
			got = append(got, e.Path()+" "+e.Name())
			if e.Name() == "x" {
				e.SkipDir()
			}
			if e.Name() == "y" {
				break
			}
		}
		if want := []string{"b/l l", "b/x x", "b/y y"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("Open and Info belong to the iteration", func(t *testing.T) {
		var last *Entry
		for e, err := range w.Walk(".") {
			must(t, err)
			f, err := e.Open()
			if why := refusal(e.Type()); why != "" {
				must(t, errIs(err, why))
			} else {
				must(t, err)
				f.Close()
			}
			last = e
		}
		if _, err := last.Open(); !errors.Is(err, errWalkedOn) {
			t.Error(err)
		}
		if _, err := last.Info(); !errors.Is(err, errWalkedOn) {
			t.Error(err)
		}
	})
	t.Run("what cannot be walked", func(t *testing.T) {
		for name, want := range map[string]error{"l": Symlink, "none": fs.ErrNotExist, "a": unix.ENOTDIR, "..": Escape} {
			n := 0
			for e, err := range w.Walk(name) {
				n++
				if e != nil || !errors.Is(err, want) {
					t.Errorf("Walk(%s): %v, %v", name, e, err)
				}
			}
			if n != 1 {
				t.Errorf("Walk(%s) yields %d times", name, n)
			}
		}
	})
	t.Run("ReadDir is sorted and shows everything", func(t *testing.T) {
		entries, err := w.ReadDir("")
		must(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if want := []string{"a", "a-b", "a.b", "b", "c", "l", "p", "\xff\xfe"}; !slices.Equal(names, want) {
			t.Errorf("%q, want %q", names, want)
		}
	})
	intact(t, out)
}

// deepTree makes a chain of directories by descriptors, since no path names the lowest.
func deepTree(t testing.TB, dir string, depth int, files bool) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		if files { // after the directory in the order, so each level has to be come back to
			e, err := unix.Openat(fd, "e", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
			must(t, err)
			unix.Close(e)
		}
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	f, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	must(t, err)
	unix.Close(f)
	unix.Close(fd)
}

// 271: the original exceeded its recursion limit at about 990 levels.
func TestDeepTrees271(t *testing.T) {
	const depth = 5000
	w, dir := newWorkspace(t)
	deepTree(t, dir, depth, true)
	before := len(openFDs())
	most, n, bottom := 0, 0, 0
	for e, err := range w.Walk(".") {
		must(t, err)
		if n++; n%50 == 0 {
			most = max(most, len(openFDs())-before)
		}
		if e.Name() == "bottom" {
			bottom = strings.Count(e.Path(), "/")
			f, err := e.Open()
			must(t, err)
			f.Close()
			// A name too long for one system call can still be opened.
			f, err = w.Open(e.Path())
			must(t, err)
			f.Close()
			must(t, w.WriteFile(e.Path(), []byte("deep")))
		}
	}
	if n != 2*depth+1 || bottom != depth {
		t.Errorf("%d entries, the lowest at level %d", n, bottom)
	}
	if most > maxHeld+4 {
		t.Errorf("%d descriptors held", most)
	}
	must(t, w.RemoveAll("d"))
	if w.Exists("d") {
		t.Error("not removed")
	}
}

func TestWalkStopsAtItsDepth(t *testing.T) {
	w, dir := newWorkspace(t)
	deepTree(t, dir, 12, false)
	var deepest string
	var errs []error
	err := w.walk("", bounds{depth: 5, names: Unlimited}, func(e *Entry, err error) error {
		deepest = e.Path()
		if err != nil {
			errs = append(errs, err)
		}
		return nil
	})
	must(t, err)
	var limit *LimitError
	if deepest != "d/d/d/d/d" || len(errs) != 1 || !errors.As(errs[0], &limit) {
		t.Errorf("%q, %v", deepest, errs)
	}
}

// A directory that the guest moves away while the walk is below it, with the
// descriptor above already given up.
func TestWalkFindsItsWayBackOrSaysSo(t *testing.T) {
	w, dir := newWorkspace(t)
	deepTree(t, dir, maxHeld+10, true)
	plant(t, dir, "z")
	top := dir
	for range 5 {
		top = filepath.Join(top, "d")
	}
	var lost []string
	var last string
	for e, err := range w.Walk(".") {
		if err != nil {
			if !errors.Is(err, Unreadable) {
				t.Error(err)
			}
			lost = append(lost, e.Path())
		}
		if e.Name() == "bottom" {
			must(t, os.Rename(filepath.Join(top, "d"), filepath.Join(dir, "moved")))
		}
		last = e.Path()
	}
	if want := strings.TrimSuffix(strings.Repeat("d/", 5), "/"); len(lost) != 1 || lost[0] != want {
		t.Errorf("lost %q, want %q", lost, want)
	}
	if last != "z" {
		t.Errorf("the walk ended at %s", last)
	}
}
