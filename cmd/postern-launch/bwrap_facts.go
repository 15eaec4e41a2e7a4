//go:build linux

package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/populationgenomics/postern-go/compat/bwrapflags"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// facts looks up what a command line may depend on.
func (l *bwrapLauncher) facts() (bwrapflags.Facts, error) {
	f := bwrapflags.Facts{
		Program:          l.args[0],
		UID:              uint32(unix.Getuid()),
		GID:              uint32(unix.Getgid()),
		LastCap:          lastCap(),
		UserNamespaces:   userNamespacesEnabled,
		CgroupNamespaces: func() bool { return haveNamespaces("cgroup") },
		Terminal:         terminalName(1),
		ProcWritable:     procWritable,
	}
	var buf [unix.PathMax]byte
	if n, err := unix.Getcwd(buf[:]); err == nil && n > 0 && buf[0] == '/' {
		f.Dir = string(buf[:n-1])
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return f, fmt.Errorf("capget failed: %w", err)
	}
	f.Caps = nsexec.CapSet(data[0].Effective) | nsexec.CapSet(data[1].Effective)<<32
	if f.UID != 0 && data[0].Permitted|data[1].Permitted != 0 {
		return f, said("Unexpected capabilities but not setuid, old file caps config?")
	}
	return f, nil
}

// haveNamespaces tells whether the kernel has namespaces of a type.
func haveNamespaces(kind string) bool {
	var st unix.Stat_t
	return unix.Lstat("/proc/self/ns/"+kind, &st) == nil // what it leads to takes longer to find
}

// procWritable tests what of /proc needs to be covered. Directories say nothing
// of the files below: /proc/sys is writable for nobody, and yet the kernel lets
// a process whose user is root outside of all user namespaces write files in
// it whatever capabilities it lacks.
func procWritable() []string {
	below := map[string][]string{"sys": {"sys/kernel/core_pattern", "sys/vm/drop_caches"}}
	var out []string
	for _, m := range bwrapflags.ProcMasks() {
		for _, p := range append([]string{m}, below[m]...) {
			err := unix.Access("/proc/"+p, unix.W_OK)
			// One that is read-only here need not be so in a new mount.
			if err == nil || err == unix.EROFS {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

// lastCap asks the kernel for the number of its last capability.
func lastCap() int {
	return sort.Search(63, func(n int) bool {
		return unix.Prctl(unix.PR_CAPBSET_READ, uintptr(n+1), 0, 0, 0) != nil
	})
}

// userNamespacesEnabled tells whether it makes sense to try. One may still be
// refused. A setting that cannot be read says nothing.
func userNamespacesEnabled() bool {
	switch setting("/proc/sys/user/max_user_namespaces") {
	case "0":
		return false
	case "":
		return haveNamespaces("user")
	}
	return true
}

// setting reads a file of the kernel's with one word, or nothing if it cannot.
func setting(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [64]byte
	n, _ := unix.Read(fd, b[:])
	return strings.TrimSpace(string(b[:max(n, 0)]))
}

// terminalName is ttyname: the path of the terminal a descriptor is open on.
func terminalName(fd int) string {
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		return ""
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return ""
	}
	var there, here unix.Stat_t
	if unix.Stat(name, &there) != nil || unix.Fstat(fd, &here) != nil || there.Rdev != here.Rdev || there.Ino != here.Ino || there.Dev != here.Dev {
		return "" // of another mount namespace
	}
	return name
}
