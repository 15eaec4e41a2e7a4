package stage

import (
	"fmt"
	"runtime"
)

// An Arch is a machine architecture a stage exists for.
type Arch uint8

const (
	AMD64 Arch = iota
	ARM64
	arches
)

func (a Arch) String() string {
	if a < arches {
		return [arches]string{"amd64", "arm64"}[a]
	}
	return fmt.Sprintf("arch(%d)", uint8(a))
}

func (a Arch) elfMachine() uint16 { return [arches]uint16{62, 183}[a] }

// Host returns the architecture this process runs on. ok is false where no
// stage exists, and then nothing can be launched.
func Host() (a Arch, ok bool) {
	switch runtime.GOARCH {
	case "amd64":
		return AMD64, true
	case "arm64":
		return ARM64, true
	}
	return 0, false
}
