//go:build linux

package main

import (
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// A said is an error in bubblewrap's own words, whatever Go's taste in errors.
type said string

func (s said) Error() string { return string(s) }

// unshareTexts are what bubblewrap says of namespaces it cannot have, which
// several of its callers look for to explain it to their own users.
func unshareTexts(user bool) map[unix.Errno]string {
	texts := map[unix.Errno]string{
		unix.ENOSPC: "Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
	}
	if user {
		texts[unix.EINVAL] = "Creating new namespace failed, likely because the kernel does not support user namespaces."
		texts[unix.EPERM] = "No permissions to create a new namespace, likely because the kernel does not allow non-privileged user namespaces: " +
			"see kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns, or the seccomp profile of the container"
	}
	return texts
}

// phrase puts a step of the launch into bubblewrap's words.
func (l *bwrapLauncher) phrase(do, on string) (before, place, after string) {
	path := l.cmd.Dest(on)
	switch do {
	case mounts.DoSource:
		if fd, ok := strings.CutPrefix(on, "descriptor "); ok {
			return "Can't find source path /proc/self/fd/", fd, ""
		}
		return "Can't find source path ", l.cmd.Source(on), ""
	case mounts.DoSameFile:
		return "Race condition binding dirfd", "", "\n"
	case mounts.DoOnLink:
		return "Can't mount on symlink destination ", path, "\n"
	case mounts.DoOnFile:
		return "Destination is not a directory ", path, "\n"
	case mounts.DoOnDir:
		return "Destination is not a file ", path, "\n"
	case mounts.DoParents:
		return "Can't mkdir parents for ", path, ""
	case mounts.DoMkdir, mounts.DoCreate:
		return "Can't create file ", path, ""
	case mounts.DoFlags:
		return "Can't bind mount on ", l.cmd.Source(on), ""
	case mounts.DoOpenDest, mounts.DoAttach:
		return "Can't bind mount on ", path, ""
	case mounts.DoWrite:
		return "Can't write data to file ", path, ""
	case mounts.DoTmpfs:
		return "Can't mount tmpfs on ", path, ""
	case mounts.DoProc:
		return "Can't mount proc on ", path, ""
	case mounts.DoMask:
		return "Can't bind mount ", path, " read-only"
	case mounts.DoDevpts:
		return "Can't mount devpts on ", path, ""
	case mounts.DoDevice:
		return "Can't bind mount /oldroot", on, ""
	case mounts.DoMqueue:
		return "Can't mount mqueue on ", path, ""
	case mounts.DoOverlay:
		return "Can't make overlay mount on ", path, ""
	case mounts.DoReadlink:
		return "Can't make symlink at ", path, ": destination exists and is not a symlink\n"
	case mounts.DoSymlink:
		return "Can't make symlink at ", path, ""
	case mounts.DoFind:
		return "Can't open ", path, ""
	case mounts.DoChmod:
		return "Can't chmod ", path, ""
	case mounts.DoRemount:
		return "Can't remount readonly on ", path, ""
	case mounts.DoSlave:
		return "Failed to make / slave", "", ""
	case mounts.DoRoot:
		return "Failed to mount tmpfs", "", ""
	case mounts.DoEnter:
		return "pivot_root(/newroot)", "", ""
	case mounts.DoDetach:
		return "umount old root", "", ""

	case nsexec.DoUnshare:
		return "Creating new namespace failed", "", ""
	case nsexec.DoMap:
		return "setting up ", on, " map"
	case nsexec.DoSetgroups:
		return "error writing to setgroups", "", ""
	case nsexec.DoJoin:
		if on == "pid" {
			return "Setting pidns failed", "", ""
		}
		return "Joining specified ", on, " namespace failed"
	case nsexec.DoUserNS2:
		return "Setting userns2 failed", "", ""
	case nsexec.DoIDs:
		return "unable to switch to uid and gid", "", ""
	case nsexec.DoFork:
		return "Can't fork for pid 1", "", ""
	case nsexec.DoLoopback:
		return "loopback: Failed RTM_NEWADDR", "", ""
	case nsexec.DoHostname:
		return "Can't set hostname to ", on, ""
	case nsexec.DoSession:
		return "setsid", "", ""
	case nsexec.DoCaps:
		return "capset failed", "", ""
	case nsexec.DoKeepCaps:
		return "Adding ambient capability ", on, ""
	case nsexec.DoSeccomp:
		return "prctl(PR_SET_SECCOMP)", "", ""
	case nsexec.DoUsernsLimit:
		if on != "" {
			return "cannot open ", on, ""
		}
		return "unshare user ns", "", ""
	case nsexec.DoUsernsCheck:
		return "creation of new user namespaces was not disabled as requested", "", "\n"
	case nsexec.DoDir:
		return "Can't chdir to ", on, ""
	case nsexec.DoLock:
		return "Unable to lock file ", on, ""
	case nsexec.DoOpenLock:
		return "Unable to open lock file ", on, ""
	}
	if on != "" {
		return do + " ", path, ""
	}
	return do, "", ""
}

// phraseError is phrase for a launch that was started, not executed.
func (l *bwrapLauncher) phraseError(e *nsexec.StartError) string {
	if e.Step == nsexec.DoUnshare {
		if text, ok := l.cmd.Spec.Launcher.UnshareTexts[e.Errno]; ok {
			return text
		}
	}
	before, place, after := l.phrase(e.Step, e.On)
	text := before + place + after
	if whole, ok := strings.CutSuffix(text, "\n"); ok {
		return whole
	}
	return text + ": " + pidone.ErrnoText(e.Errno)
}
