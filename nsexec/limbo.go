//go:build linux

package nsexec

import (
	"fmt"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// A limbo is a pair of connected sockets in which one lies, in a message on its
// way to itself, and with it the mount namespace. When the sockets are closed
// that message can never be read, and the kernel's collector of such garbage
// takes down what is in it. Otherwise the last process in the namespace does,
// whose end, and so the launcher's, has to wait for it: a tenth of a launch.
//
// Without sockets, or before Linux 6.11, it is as otherwise.
type limbo [2]int

func (l *limbo) open() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make a pair of sockets for the launch: %w", err)
	}
	*l = pair
	return nil
}

// pidfdGetMntNamespace asks a pidfd for the process's mount namespace.
const pidfdGetMntNamespace = 0xff03

// inter runs in the stage, which is in the namespace.
func (l *limbo) inter(c *compiler) {
	if l[0] == 0 {
		return
	}
	step := do("leave the mount namespace to the kernel")
	var not stage.Label
	ns := c.Slot()
	c.SysOr(&not, ns, step, stage.Ioctl, c.stage, stage.Imm(pidfdGetMntNamespace), stage.Imm(0))
	for _, fd := range []stage.Arg{ns, stage.FD(l[0])} {
		c.sendFile(&not, step, stage.FD(l[1]), stage.Blob("\x00"), 1, fd)
	}
	c.Place(&not)
}
