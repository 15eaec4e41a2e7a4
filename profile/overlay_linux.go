package profile

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func (o *Overlay) upper() string { return filepath.Join(o.Upper, "upper") }
func (o *Overlay) work() string  { return filepath.Join(o.Upper, "work") }

// Claim makes the directories of an upper layer and takes the lock on it, for
// the time until the file is closed: overlayfs does not say what happens when
// two mounts share one. The file is nil if no upper layer is kept on the host.
//
// The error is a [*FieldError]. It wraps [unix.EWOULDBLOCK] if another run has
// the lock.
func (o *Overlay) Claim() (*os.File, error) {
	if o == nil || o.Upper == "" {
		return nil, nil
	}
	for _, d := range []string{o.upper(), o.work()} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, &FieldError{"Profile.Overlay.Upper", "cannot be used: " + err.Error(), err}
		}
	}
	f, err := os.Open(filepath.Clean(o.Upper))
	if err != nil {
		return nil, &FieldError{"Profile.Overlay.Upper", "cannot be used: " + err.Error(), err}
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &FieldError{"Profile.Overlay.Upper", o.Upper + " is in use by another run", err}
	}
	return f, nil
}
