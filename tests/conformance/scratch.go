//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

// scratchTree is what every launch finds in its scratch directory, $W. "l" are links, "x" belongs to root if
// we are root.
var scratchTree = []struct{ path, content string }{
	{"d/", ""},
	{"d/inner", "inner"},
	{"d/sub/", ""},
	{"d/sub/leaf", "leaf"},
	{"d2/", ""},
	{"d2/other", "other"},
	{"empty/", ""},
	{"home/", ""},
	{"f", "f-content"},
	{"f2", "f2-content"},
	{"lo1/", ""},
	{"lo1/same", "from lo1"},
	{"lo1/one", "one"},
	{"lo2/", ""},
	{"lo2/same", "from lo2"},
	{"lo2/two", "two"},
	{"up/", ""},
	{"up/upper", "upper"},
	{"wk/", ""},
	{"up:a,b/", ""},
	{"with space/", ""},
	{"with space/it", "it"},
	{"lock", ""},
	{"link-d@", "d"},
	{"link-f@", "f"},
	{"link-abs@", "$W/d"},
	{"link-absf@", "$W/f"},
	{"dangling@", "nowhere"},
	{"dangling-abs@", "$W/nowhere"},
	{"loop@", "loop"},
	{"readonly/", ""},
	{"readonly/held", "held"},
	{"search/", ""},
	{"search/d/", ""},
	{"search/f", "found"},
	{"private/", ""},
	{"private/secret", "secret"},
}

// scratchModes are applied last. Of these, root's stay root's.
var scratchModes = []struct {
	path string
	mode os.FileMode
	root bool
}{
	{"readonly", 0o555, false},
	{"search", 0o711, true},
	{"private", 0o700, true},
}

// newScratch makes the tree for user uid and returns the identities of its directories.
func newScratch(dir string, uid int) ([]wire.FileID, error) {
	own := func(path string) error {
		if os.Geteuid() != 0 {
			return nil
		}
		return os.Lchown(path, uid, uid)
	}
	var ids []wire.FileID
	mkdir := func(path string) error {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err
		}
		ids = append(ids, wire.FileID{Dev: st.Dev, Ino: st.Ino})
		return own(path)
	}
	if err := mkdir(dir); err != nil {
		return nil, err
	}
	for _, e := range scratchTree {
		path := filepath.Join(dir, e.path)
		content := strings.ReplaceAll(e.content, "$W", dir)
		var err error
		switch e.path[len(e.path)-1] {
		case '/':
			err = mkdir(path)
		case '@':
			path = strings.TrimSuffix(path, "@")
			if err = os.Symlink(content, path); err == nil {
				err = own(path)
			}
		default:
			if err = os.WriteFile(path, []byte(content), 0o644); err == nil {
				err = own(path)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		return nil, err
	}
	if err := own(filepath.Join(dir, "fifo")); err != nil {
		return nil, err
	}
	for _, e := range scratchModes {
		path := filepath.Join(dir, e.path)
		if err := os.Chmod(path, e.mode); err != nil {
			return nil, err
		}
		if e.root && os.Geteuid() == 0 {
			if err := os.Lchown(path, 0, 0); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// removeScratch also removes what an overlay or a launcher left unreadable.
func removeScratch(dir string) error {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// snapshot describes everything below dir, by path relative to it.
func snapshot(dir string) map[string]string {
	state := map[string]string{}
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil {
			state[name] += " " + err.Error()
			return nil
		}
		info, err := e.Info()
		if err != nil {
			state[name] = err.Error()
			return nil
		}
		st := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%v %d:%d", info.Mode(), st.Uid, st.Gid)
		switch {
		case info.Mode().IsRegular():
			content, _ := os.ReadFile(path)
			text += fmt.Sprintf(" %q", content)
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			text += " -> " + target
		}
		state[name] = text
		return nil
	})
	return state
}

// changes tells what differs between two snapshots.
func changes(before, after map[string]string) map[string]string {
	result := map[string]string{}
	for name, text := range after {
		if old, ok := before[name]; !ok {
			result[name] = "created: " + text
		} else if old != text {
			result[name] = "changed: " + text
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			result[name] = "removed"
		}
	}
	return result
}
