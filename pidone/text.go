//go:build linux

package pidone

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// cText returns the C library's text where it is not Go's with a large first
// letter.
func cText(e unix.Errno) string {
	switch e {
	case unix.EIO:
		return "Input/output error"
	case unix.ENXIO:
		return "No such device or address"
	case unix.E2BIG:
		return "Argument list too long"
	case unix.ENOTTY:
		return "Inappropriate ioctl for device"
	case unix.EILSEQ:
		return "Invalid or incomplete multibyte or wide character"
	case unix.ERANGE:
		return "Numerical result out of range"
	case unix.EDOM:
		return "Numerical argument out of domain"
	case unix.ENOTSUP:
		return "Operation not supported"
	case unix.EXDEV:
		return "Invalid cross-device link"
	}
	return ""
}

// ErrnoText is the C library's text for an errno, which programs that call a
// launcher look for.
func ErrnoText(e unix.Errno) string { return string(AppendErrnoText(nil, e)) }

// AppendErrnoText appends it.
func AppendErrnoText(b []byte, e unix.Errno) []byte {
	if t := cText(e); t != "" {
		return append(b, t...)
	}
	at := len(b)
	b = append(b, e.Error()...)
	if len(b) > at && b[at] >= 'a' && b[at] <= 'z' {
		b[at] -= 'a' - 'A'
	}
	return b
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
