package stage

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Seal puts an image into an anonymous file that nobody can change any more,
// ready to be executed.
func Seal(name string, image []byte) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every memfd is executable
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("create the launch image (memfd_create): %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(image); err != nil {
		f.Close()
		return nil, fmt.Errorf("write the launch image: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal the launch image: %w", err)
	}
	return f, nil
}
