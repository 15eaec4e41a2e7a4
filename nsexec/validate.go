//go:build linux

package nsexec

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// A SpecError reports a field of a [Spec] that no launch could honour. It is
// found before anything starts.
type SpecError struct {
	Field  string
	Reason string
	Err    error // the cause, where there is one
}

func (e *SpecError) Error() string { return "nsexec: Spec." + e.Field + ": " + e.Reason }
func (e *SpecError) Unwrap() error { return e.Err }

// Validate returns all problems of the spec, joined; each is a [*SpecError] or
// a [*mounts.InvalidError].
func (s *Spec) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &SpecError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	n := s.Namespaces
	for i, d := range append(s.DirFallback[:len(s.DirFallback):len(s.DirFallback)], s.Dir) {
		if strings.IndexByte(d, 0) >= 0 {
			bad("Dir", "entry %d contains a NUL byte", i)
		}
	}
	if s.Mounts != nil {
		if !n.Mount.fresh {
			bad("Mounts", "need a new mount namespace")
		}
		if err := mounts.Validate(s.Mounts.Ops); err != nil {
			errs = append(errs, err)
		}
		if s.Dir != "" && !strings.HasPrefix(s.Dir, "/") && s.Launcher == nil {
			bad("Dir", "%q is not absolute", s.Dir)
		}
	}
	if s.Init && !n.PID.fresh {
		bad("Init", "needs a new PID namespace")
	}
	if s.Terminal && (!s.Init || s.Mounts == nil) {
		bad("Terminal", "needs Init and Mounts with a mounts.Dev at /dev")
	}
	if s.Hostname != nil && !n.UTS.fresh {
		bad("Hostname", "needs a new UTS namespace")
	}
	if s.Hostname != nil && strings.IndexByte(*s.Hostname, 0) >= 0 {
		bad("Hostname", "contains a NUL byte")
	}
	if !n.User.fresh {
		if s.UIDMap != nil || s.GIDMap != nil {
			bad("UIDMap", "needs a new user namespace")
		}
		if s.DisableUserns {
			bad("DisableUserns", "needs a new user namespace")
		}
	}
	if (s.UIDMap == nil) != (s.GIDMap == nil) {
		bad("UIDMap", "and GIDMap must be given together")
	}
	if len(s.Seccomp) > 0 && s.AllowNewPrivs {
		bad("AllowNewPrivs", "cannot be combined with Seccomp")
	}
	for i, f := range s.Seccomp {
		if err := f.Check(); err != nil {
			errs = append(errs, &SpecError{"Seccomp", fmt.Sprintf("filter %d: %v", i, err), err})
		}
	}
	if s.HostUser != nil && unix.Geteuid() != 0 {
		bad("HostUser", "can only be set by root")
	}
	for _, l := range s.Limits {
		if _, ok := pidone.LimitByName(pidone.LimitName(l.Resource)); !ok {
			bad("Limits", "no resource has the number %d", l.Resource)
		} else if l.Soft > l.Hard {
			bad("Limits", "%s: the soft limit %d is above the hard limit %d", pidone.LimitName(l.Resource), l.Soft, l.Hard)
		}
	}
	errs = append(errs, s.validateCommand(), errors.Join(s.checkFiles()...))
	return errors.Join(errs...)
}

// validateCommand returns the problems of what is a [Command]'s.
func (s *Spec) validateCommand() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &SpecError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if s.Path == "" && s.Launcher == nil {
		bad("Path", "is empty")
	}
	if len(s.Args) == 0 {
		bad("Args", "is empty; argv[0] is needed")
	}
	for _, f := range []struct {
		field string
		vals  []string
	}{{"Path", []string{s.Path}}, {"Args", s.Args}, {"Env", s.Env}} {
		for i, v := range f.vals {
			if strings.IndexByte(v, 0) >= 0 {
				bad(f.field, "entry %d contains a NUL byte", i)
			}
		}
	}
	for i, e := range s.Env {
		if k, _, ok := strings.Cut(e, "="); !ok || k == "" {
			bad("Env", "entry %d is not of the form NAME=value", i)
		}
	}
	errs = append(errs, s.checkSize()...)
	for i, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f != nil {
			if err := checkFile([...]string{"Stdin", "Stdout", "Stderr"}[i], f, !s.KeepFDs); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// checkFile refuses a descriptor that is none, and ways out of the guest.
func checkFile(field string, f *os.File, toGuest bool) error {
	if f == nil {
		return &SpecError{Field: field, Reason: "is nil"}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return &SpecError{field, "is not an open file: " + err.Error(), err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && toGuest {
		return &SpecError{Field: field, Reason: "is a directory, which would be a way out of the guest's root"}
	}
	return nil
}

// checkFiles does that for the descriptors that every launch of the spec uses.
func (s *Spec) checkFiles() []error {
	var errs []error
	check := func(field string, f *os.File, toGuest bool) {
		if err := checkFile(field, f, toGuest); err != nil {
			errs = append(errs, err)
		}
	}
	for i, f := range s.Files {
		check(fmt.Sprintf("Files[%d]", i), f, !s.KeepFDs)
	}
	for i, f := range s.StageFiles {
		check(fmt.Sprintf("StageFiles[%d]", i), f, false)
	}
	for _, t := range s.Namespaces.types() {
		if t.ns.join {
			check("Namespaces: the "+t.name+" namespace to join", t.ns.file, false)
		}
	}
	return errs
}

const (
	maxArgString = 32 * 4096 // MAX_ARG_STRLEN
	maxArgTotal  = 6 << 20   // no stack limit lets the kernel accept more
)

// checkSize finds what the kernel would refuse with E2BIG.
func (s *Spec) checkSize() []error {
	var errs []error
	total := 0
	for _, f := range []struct {
		field string
		vals  []string
	}{{"Args", s.Args}, {"Env", s.Env}} {
		for i, v := range f.vals {
			total += len(v) + 1 + 8
			if len(v) >= maxArgString {
				errs = append(errs, &SpecError{f.field, fmt.Sprintf("entry %d has %d bytes; the kernel accepts %d: pass large data by a file or standard input", i, len(v), maxArgString-1), unix.E2BIG})
			}
		}
	}
	limit := maxArgTotal
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_STACK, &rl) == nil && rl.Cur/4 < uint64(limit) {
		limit = max(int(rl.Cur/4), maxArgString)
	}
	if total > limit {
		errs = append(errs, &SpecError{"Args", fmt.Sprintf("and Env take %d bytes together; the kernel accepts %d: pass large data by a file or standard input", total, limit), unix.E2BIG})
	}
	return errs
}
