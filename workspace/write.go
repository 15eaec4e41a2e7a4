package workspace

import (
	"crypto/rand"
	"errors"
	"io/fs"
)

// Create opens a file for writing: a new one of mode 0600 (less the umask), or a regular file
// that is there, emptied. Links, FIFOs and devices are refused, and so is a file
// with hard links, which could lie outside; [Workspace.WriteFile] replaces one of those.
func (w *Workspace) Create(name string) (*File, error) {
	var f *File
	err := w.at("create", name, func(dirfd int, base string) error {
		path, err := clean(name)
		if err != nil {
			return err
		}
		f, err = w.create(dirfd, base, path)
		return err
	})
	return f, err
}

func (w *Workspace) create(dirfd int, base, path string) (*File, error) {
	fd, err := w.r.open(dirfd, base, createNew)
	var st stat
	switch {
	case err == nil:
		st, err = statFD(fd)
	case errors.Is(err, fs.ErrExist):
		fd, st, err = w.r.openFile(dirfd, base, write)
		if err != nil {
			return nil, err
		}
		if st.Nlink > 1 {
			err = Hardlink
		} else {
			err = truncateFD(fd)
		}
	default:
		return nil, err
	}
	if err != nil {
		closeFD(fd)
		return nil, err
	}
	return &File{f: newFile(fd, path), path: path, st: st}, nil
}

// WriteFile writes a file as a whole: the guest sees the old one or the new one,
// and after an error the old one. A new file has mode 0600 (less the umask); one that takes the
// place of another has that one's permissions and, if the host may, its owner.
// A link, FIFO, device or directory at name is refused, not replaced.
//
// It is atomic for those who look, not against a crash of the machine.
func (w *Workspace) WriteFile(name string, data []byte) error {
	return w.at("write", name, func(dirfd int, base string) error {
		old, err := statAt(dirfd, base)
		var like *stat
		switch {
		case err == nil:
			if why := refusal(old.mode); why != "" {
				return why
			}
			if old.mode.IsDir() {
				return Directory
			}
			like = &old
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return w.r.replace(dirfd, base, like, func(fd int) error {
			_, err := writeFD(fd, data)
			return err
		})
	})
}

// replace puts a new file at base, written by fill, in place of whatever but a
// directory is there. Its permissions and owner are like those of the file it
// replaces, if there is one. Nothing is left of a failure.
func (r *resolver) replace(dirfd int, base string, like *stat, fill func(fd int) error) error {
	temp := ".postern-" + rand.Text() + ".tmp"
	fd, err := r.open(dirfd, temp, createNew)
	if err != nil {
		return err
	}
	err = fill(fd)
	if err == nil && like != nil {
		own, serr := statFD(fd)
		if err = serr; err == nil && (own.UID != like.UID || own.GID != like.GID) {
			// Only root may give files away; as anyone else the file is ours from now on.
			_ = chownFD(fd, int(like.UID), int(like.GID))
		}
		if err == nil {
			err = chmodFD(fd, uint32(like.mode.Perm()))
		}
	}
	if cerr := closeFD(fd); err == nil {
		err = cerr
	}
	if err == nil {
		err = renameAt(dirfd, temp, dirfd, base)
	}
	if err != nil {
		_ = unlinkAt(dirfd, temp)
	}
	return err
}
