//go:build linux

package nsexec_test

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

func uintptrOf(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) }

// openPTY opens a terminal of the host.
func openPTY(t *testing.T) (master, peer *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		testutil.Missing(t, "no terminal to be had: "+err.Error())
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	peer, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, peer
}
