//go:build linux

package mounts

import (
	"errors"
	"fmt"
	"strings"
)

// An InvalidError reports an operation that no launch could carry out. It is
// found before anything starts.
type InvalidError struct {
	Op     string // the operation, printed
	Reason string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("mount operation %s: %s", e.Op, e.Reason) }

// Validate checks every operation and returns all problems, joined; each is
// an [*InvalidError].
func Validate(ops []Op) error {
	var errs []error
	for _, op := range ops {
		if err := op.validate(); err != nil {
			errs = append(errs, &InvalidError{op.String(), err.Error()})
		}
	}
	return errors.Join(errs...)
}

func checkPath(what, p string) error {
	switch {
	case p == "":
		return errors.New(what + " is empty")
	case !strings.HasPrefix(p, "/"):
		return fmt.Errorf("%s %q is not absolute", what, p)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("%s %q contains a NUL byte", what, p)
	}
	return nil
}

func (o Bind) validate() error {
	if o.FD == nil {
		if err := checkPath("source", o.Source); err != nil {
			return err
		}
	} else if *o.FD < 0 {
		return fmt.Errorf("descriptor %d is negative", *o.FD)
	}
	if o.Mode > Device {
		return fmt.Errorf("unknown mode %d", o.Mode)
	}
	return checkPath("destination", o.Dest)
}

func (o Tmpfs) validate() error {
	if o.Size < 0 || o.Inodes < 0 {
		return errors.New("a limit is negative")
	}
	return checkPath("destination", o.Dest)
}

func (o Proc) validate() error {
	for _, m := range append(o.Masks[:len(o.Masks):len(o.Masks)], o.Hidden...) {
		if m == "" || strings.HasPrefix(m, "/") || strings.Contains(m, "..") || strings.IndexByte(m, 0) >= 0 {
			return fmt.Errorf("mask %q is not a plain path below proc", m)
		}
	}
	if o.Host && len(o.Hidden) > 0 {
		return errors.New("nothing of the host's proc can be hidden")
	}
	return checkPath("destination", o.Dest)
}

func (o Dev) validate() error {
	if o.Console != "" {
		if err := checkPath("console", o.Console); err != nil {
			return err
		}
	}
	if o.Size < 0 || o.Inodes < 0 {
		return errors.New("a limit is negative")
	}
	return checkPath("destination", o.Dest)
}

func (o Mqueue) validate() error    { return checkPath("destination", o.Dest) }
func (o Dir) validate() error       { return checkPath("destination", o.Dest) }
func (o File) validate() error      { return checkPath("destination", o.Dest) }
func (o Chmod) validate() error     { return checkPath("destination", o.Dest) }
func (o RemountRO) validate() error { return checkPath("destination", o.Dest) }

func (o BindData) validate() error {
	if o.Mode > ReadWrite {
		return fmt.Errorf("mode %s makes no sense for data", o.Mode)
	}
	return checkPath("destination", o.Dest)
}

func (o Symlink) validate() error {
	if strings.IndexByte(o.Target, 0) >= 0 {
		return errors.New("target contains a NUL byte")
	}
	return checkPath("destination", o.Dest)
}

func (o Overlay) validate() error {
	for _, l := range o.Lower {
		if err := checkPath("lower layer", l); err != nil {
			return err
		}
	}
	switch {
	case len(o.Lower) == 0:
		return errors.New("has no lower layer")
	case o.ReadOnly && len(o.Lower) < 2:
		return errors.New("is read-only and needs at least two layers")
	case o.ReadOnly && (o.Upper != "" || o.Work != ""):
		return errors.New("is read-only and cannot have an upper layer")
	case (o.Upper == "") != (o.Work == ""):
		return errors.New("needs both an upper layer and a work directory")
	case o.Size < 0:
		return errors.New("size is negative")
	}
	if o.Upper != "" {
		if err := checkPath("upper layer", o.Upper); err != nil {
			return err
		}
		if err := checkPath("work directory", o.Work); err != nil {
			return err
		}
	}
	if n := len(o.data("upper", "work")); n >= maxMountData {
		return fmt.Errorf("its layers' paths take %d bytes; the kernel accepts %d", n, maxMountData-1)
	}
	return checkPath("destination", o.Dest)
}
