//go:build linux

package pidone_test

import (
	"testing"

	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

func TestErrnoText(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EPERM: "Operation not permitted", unix.ENOENT: "No such file or directory", unix.EIO: "Input/output error",
		unix.EACCES: "Permission denied", unix.ENOEXEC: "Exec format error", unix.E2BIG: "Argument list too long",
		unix.ENAMETOOLONG: "File name too long", unix.ELOOP: "Too many levels of symbolic links", unix.EXDEV: "Invalid cross-device link",
	} {
		if got := pidone.ErrnoText(errno); got != want {
			t.Errorf("errno %d is %q, want %q", errno, got, want)
		}
	}
}

func TestLimitNames(t *testing.T) {
	for i := range 16 {
		name := pidone.LimitName(i)
		if n, ok := pidone.LimitByName(name); !ok || n != i {
			t.Errorf("limit %d is %q, which is %d, %v", i, name, n, ok)
		}
	}
	for _, bad := range []int{-1, 16, 99} {
		if _, ok := pidone.LimitByName(pidone.LimitName(bad)); ok {
			t.Errorf("limit %d has a name", bad)
		}
	}
}
