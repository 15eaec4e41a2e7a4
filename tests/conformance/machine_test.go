//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"os"
)

// machineModes are the modes of what command lines run by root could reach if
// a launcher went wrong. A run that changed one has found a fault of the worst
// kind, and must not leave the machine like that.
func machineModes() map[string]fs.FileMode {
	modes := map[string]fs.FileMode{}
	for _, path := range []string{
		"/", "/proc", "/dev", "/dev/null", "/dev/zero", "/dev/tty", "/dev/urandom", "/dev/shm", "/sys", "/tmp", "/mnt",
		"/etc", "/etc/passwd", "/etc/hostname", "/usr", "/usr/bin", "/usr/share", "/root", "/home", "/var", "/run",
	} {
		if st, err := os.Lstat(path); err == nil {
			modes[path] = st.Mode()
		}
	}
	return modes
}

// restoreMachine puts back modes that have changed and returns which.
func restoreMachine(before map[string]fs.FileMode) []string {
	var changed []string
	for path, mode := range before {
		st, err := os.Lstat(path)
		if err == nil && st.Mode() == mode {
			continue
		}
		now := "gone"
		if err == nil {
			now = st.Mode().String()
		}
		changed = append(changed, fmt.Sprintf("%s was %v and is %s", path, mode, now))
		if err == nil && mode&fs.ModeSymlink == 0 {
			os.Chmod(path, mode)
		}
	}
	return changed
}
