//go:build linux

package pidone

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// cTexts are the errnos whose Go text is not the C library's with a small
// first letter.
var cTexts = map[unix.Errno]string{
	unix.EIO:     "Input/output error",
	unix.ENXIO:   "No such device or address",
	unix.E2BIG:   "Argument list too long",
	unix.ENOTTY:  "Inappropriate ioctl for device",
	unix.EILSEQ:  "Invalid or incomplete multibyte or wide character",
	unix.ERANGE:  "Numerical result out of range",
	unix.EDOM:    "Numerical argument out of domain",
	unix.ENOTSUP: "Operation not supported",
	unix.EXDEV:   "Invalid cross-device link",
}

// ErrnoText is the C library's text for an errno, which programs that call a
// launcher look for.
func ErrnoText(e unix.Errno) string {
	if t, ok := cTexts[e]; ok {
		return t
	}
	t := e.Error()
	if t != "" && t[0] >= 'a' && t[0] <= 'z' {
		t = string(t[0]-'a'+'A') + t[1:]
	}
	return t
}

var limitNames = [...]string{
	unix.RLIMIT_CPU: "cpu", unix.RLIMIT_FSIZE: "fsize", unix.RLIMIT_DATA: "data", unix.RLIMIT_STACK: "stack",
	unix.RLIMIT_CORE: "core", unix.RLIMIT_RSS: "rss", unix.RLIMIT_NPROC: "nproc", unix.RLIMIT_NOFILE: "nofile",
	unix.RLIMIT_MEMLOCK: "memlock", unix.RLIMIT_AS: "as", unix.RLIMIT_LOCKS: "locks", unix.RLIMIT_SIGPENDING: "sigpending",
	unix.RLIMIT_MSGQUEUE: "msgqueue", unix.RLIMIT_NICE: "nice", unix.RLIMIT_RTPRIO: "rtprio", unix.RLIMIT_RTTIME: "rttime",
}

// LimitName returns the name of a resource limit as prlimit(1) has it.
func LimitName(resource int) string {
	if resource >= 0 && resource < len(limitNames) {
		return limitNames[resource]
	}
	return fmt.Sprintf("limit %d", resource)
}

// LimitByName is the reverse of LimitName.
func LimitByName(name string) (resource int, ok bool) {
	for i, n := range limitNames {
		if n == name {
			return i, true
		}
	}
	return 0, false
}
