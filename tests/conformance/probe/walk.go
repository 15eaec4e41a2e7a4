//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/tests/conformance/internal/wire"
)

// A walker fills in files: the paths asked for, and whole trees where the launcher made the file system or
// the harness knows the directory.
type walker struct {
	question wire.Question
	files    map[string]wire.File
	slash    uint64 // the device of /
}

// A walk ends here, so that a mistake in the choice of trees shows instead of taking minutes.
const maxFiles = 5000

func (w walker) all() {
	var st unix.Stat_t
	if unix.Stat("/", &st) == nil {
		w.slash = st.Dev
	}
	w.visit("/", 0, false)
	for _, path := range w.question.Paths {
		w.visit(path, 0, false)
	}
}

// visit reports on path and descends if it may. Inside a root every directory of the same device belongs to
// the tree.
func (w walker) visit(path string, rootDevice uint64, inRoot bool) {
	if _, done := w.files[path]; done && path != "/" || len(w.files) > maxFiles {
		return
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		w.files[path] = wire.File{Error: err.Error()}
		return
	}
	f := wire.File{
		Type:  typeName(st.Mode),
		Mode:  fmt.Sprintf("%04o", st.Mode&07777),
		Owner: fmt.Sprintf("%d:%d", st.Uid, st.Gid),
	}
	if f.Type != "link" {
		f.Access = access(path)
	}
	switch f.Type {
	case "link":
		f.Mode = ""
		f.Link, _ = os.Readlink(path)
	case "char", "block":
		f.Device = fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	case "dir":
		var fs unix.Statfs_t
		if unix.Statfs(path, &fs) == nil {
			f.FS = fsName(int64(fs.Type))
		}
	case "file":
		var fs unix.Statfs_t
		if unix.Statfs(path, &fs) != nil || fs.Type == unix.PROC_SUPER_MAGIC {
			break
		}
		if inRoot || !slices.Contains(w.question.KnownDevices, st.Dev) && st.Size < 1<<12 {
			content, err := os.ReadFile(path)
			if len(content) > 80 {
				content = fmt.Appendf(content[:80], "... (%d bytes)", st.Size)
			}
			f.Content = string(content)
			if err != nil {
				f.Content = "unreadable"
			}
		}
	}
	w.files[path] = f
	if f.Type != "dir" || f.FS == "proc" || f.FS == "sysfs" || f.FS == "cgroup" || f.FS == "cgroup2" {
		return
	}
	inRoot = inRoot && st.Dev == rootDevice || slices.Contains(w.question.Roots, wire.FileID{Dev: st.Dev, Ino: st.Ino})
	// The top is always listed: what a launcher puts there is the point.
	if !inRoot && path != "/" && slices.Contains(w.question.KnownDevices, st.Dev) {
		return
	}
	// An overlay as the whole root shows the host's own directories, which other programs change all the time.
	if f.FS == "overlay" && path != "/" && st.Dev == w.slash {
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, entry := range entries {
		w.visit(filepath.Join(path, entry.Name()), st.Dev, inRoot)
	}
}

// access asks for the effective identity, as opening would.
func access(path string) string {
	text := ""
	for i, mode := range []uint32{unix.R_OK, unix.W_OK, unix.X_OK} {
		if unix.Faccessat2(unix.AT_FDCWD, path, mode, unix.AT_EACCESS) == nil {
			text += "rwx"[i : i+1]
		}
	}
	return text
}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFREG:
		return "file"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFCHR:
		return "char"
	case unix.S_IFBLK:
		return "block"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "anon"
}

func fsName(magic int64) string {
	names := map[int64]string{
		unix.TMPFS_MAGIC: "tmpfs", unix.PROC_SUPER_MAGIC: "proc", unix.SYSFS_MAGIC: "sysfs",
		unix.DEVPTS_SUPER_MAGIC: "devpts", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		unix.CGROUP_SUPER_MAGIC: "cgroup", unix.CGROUP2_SUPER_MAGIC: "cgroup2", 0x19800202: "mqueue",
	}
	if name, ok := names[magic]; ok {
		return name
	}
	return "other"
}
