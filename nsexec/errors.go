//go:build linux

package nsexec

import (
	"errors"
	"fmt"

	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

// A StartError reports the step at which a launch failed. The program never
// ran, and nothing of the launch is left.
type StartError struct {
	Step  string // what was being done: "mount proc on"
	On    string // on which path or object: "/proc"; may be empty
	Errno unix.Errno
	// Hint says what to do about it, where that is known.
	Hint string
}

func (e *StartError) Error() string {
	step := e.Step
	if e.On != "" {
		step += " " + e.On
	}
	s := fmt.Sprintf("launch failed: %s: %v", step, e.Errno)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the errno.
func (e *StartError) Unwrap() error { return e.Errno }

// ErrKilled says that a launch was killed from outside before its program ran.
var ErrKilled = errors.New("the launch was killed before its program ran")

// hint knows the usual causes of a failed step.
func hint(do string, errno unix.Errno) string {
	switch {
	case do == DoUnshare && errno == unix.ENOSPC:
		return "a limit in /proc/sys/user/max_*_namespaces is reached or 0, or namespaces are nested 32 deep"
	case do == DoUnshare && errno == unix.EPERM:
		return "user namespaces are forbidden here: kernel.unprivileged_userns_clone=0, a seccomp profile of a container, or a chroot"
	case do == DoUnshare && errno == unix.EINVAL:
		return "the kernel was built without one of these namespaces"
	case do == DoMap && errno == unix.EACCES, do == DoSetgroups && errno == unix.EACCES, do == DoLoopback && errno == unix.EPERM, do == mounts.DoSlave && (errno == unix.EACCES || errno == unix.EPERM):
		return "a security module restricts user namespaces, as Ubuntu 23.10 and later do: allow them for this program with an AppArmor profile that has 'userns,', or set kernel.apparmor_restrict_unprivileged_userns=0"
	case do == DoMap && errno == unix.EPERM:
		return "the ID to map is not the caller's own; ranges need newuidmap and an entry in /etc/subuid and /etc/subgid"
	case do == DoMap && errno == unix.EROFS, do == DoSetgroups && errno == unix.EROFS:
		return "/proc is mounted read-only here"
	case do == mounts.DoProc && errno == unix.EPERM:
		return "parts of /proc are masked here, as in a container, and the kernel lets nobody mount an unmasked one: run the container with an unmasked /proc"
	case do == mounts.DoSource && errno == unix.ENOENT:
		return "no such path on the host"
	case do == mounts.DoSource && errno == unix.EACCES, do == mounts.DoDevice && errno == unix.EACCES:
		return "the user running the launch cannot reach it"
	case (do == mounts.DoOpenDest || do == mounts.DoOnLink) && errno == unix.ELOOP:
		return "the destination is a symbolic link; name what it points to"
	case do == mounts.DoAttach && (errno == unix.ENOTDIR || errno == unix.EINVAL):
		return "a directory can only be mounted on a directory and a file on a file"
	case do == mounts.DoRoot && errno == unix.EINVAL:
		return "the root of this process is no mount point: it runs in a chroot or in an initramfs, where no new root can be entered"
	case errno == unix.ENOSYS:
		return "the kernel lacks this call or a seccomp filter hides it, as systemd's RestrictSUIDSGID= and gVisor do with openat2; Linux 5.12 or later is needed"
	case errno == unix.EMFILE || errno == unix.ENFILE:
		return "no more descriptors: raise RLIMIT_NOFILE or pass fewer"
	case errno == unix.ENOSPC:
		return "the file system is full, or a size limit is reached"
	}
	return ""
}
