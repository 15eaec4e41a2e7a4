//go:build linux

package nsexec

import (
	"fmt"
	"syscall"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// Exec replaces this process by the launch. What stays of it is a monitor of a
// few pages that waits for the guest and exits with its status, 128 + N if
// signal N ended it. A step that fails is reported on standard error in the
// words of s.Launcher, which must be set.
//
// Standard streams and, with KeepFDs, other descriptors are passed on as they
// are: Stdin, Stdout, Stderr, Files, ranges of IDs and Terminal are for Start.
// Exec returns only if the launch could not begin. Lock the calling goroutine to
// its thread if that has a signal mask of its own, which the guest and the monitor
// are to have.
//
// The program does not start before the monitor is ready, and a signal that
// comes earlier does what it would have done before the launch. When the monitor
// has exited nothing of the guest runs any more, unless it lingers, but file
// systems that were mounted in it may still be in use for some milliseconds.
func Exec(s *Spec) error {
	defer plugStreams()()
	h := newHolder(holderLimit)
	defer h.dismiss()
	x, err := newExecution(s, h)
	if err != nil {
		return err
	}
	defer x.events.close()
	linked, err := x.prog.Image()
	if err != nil {
		return err
	}
	image, err := stage.Seal("postern-stage", linked)
	if err != nil {
		return err
	}
	defer image.Close()
	for _, fd := range append(x.fds, x.events.fds()...) {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("pass descriptor %d to the launch: %w", fd, err)
		}
	}
	// This also gives back the soft limit on descriptors, which the runtime
	// has raised for itself.
	path := fmt.Sprintf("/proc/self/fd/%d", image.Fd())
	err = syscall.Exec(path, []string{s.Launcher.comm()}, nil)
	return &StartError{Step: "execute the launch image", On: path, Errno: errnoOf(err), Hint: execHint(errnoOf(err))}
}

// plugStreams keeps descriptors of the launch from taking the numbers of
// standard streams that are closed, and stay so for the guest.
func plugStreams() (unplug func()) {
	var plugs []int
	for fd := range 3 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			continue
		}
		if plug, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil { // the lowest free number
			plugs = append(plugs, plug)
		}
	}
	return func() {
		for _, fd := range plugs {
			unix.Close(fd)
		}
	}
}

// An execution is an Exec that has been compiled.
type execution struct {
	prog   *stage.Program
	fds    []int // of ours that it uses, without the events
	events events
}

func newExecution(s *Spec, h *holder) (*execution, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	for _, bad := range []struct {
		is    bool
		field string
	}{{s.Launcher == nil, "Launcher"}, {s.Terminal, "Terminal"}, {s.UIDMap != nil, "UIDMap"}, {len(s.Files) > 0, "Files"},
		{len(s.StageFiles) > 0, "StageFiles"}, {s.Stdin != nil || s.Stdout != nil || s.Stderr != nil, "Stdin"}} {
		if bad.is {
			return nil, &SpecError{Field: bad.field, Reason: "does not go with Exec"}
		}
	}
	x := &execution{}
	c := compiler{spec: s, monitor: true, holder: h.pid, control: -1, joins: map[int]int{}}
	for _, t := range s.Namespaces.types() {
		if t.ns.file != nil {
			c.joins[t.flag] = int(t.ns.file.Fd())
			x.fds = append(x.fds, int(t.ns.file.Fd()))
		}
	}
	if err := x.events.open(&c); err != nil {
		return nil, err
	}
	c.events = x.events
	x.prog = c.compile()
	return x, nil
}

// Explain returns the program that [Exec] would run if s.Launcher is set, and
// [Start] otherwise, one operation a line.
func (s *Spec) Explain() (string, error) {
	if s.Launcher != nil && !s.Terminal {
		x, err := newExecution(s, &holder{})
		if err != nil {
			return "", err
		}
		defer x.events.close()
		return x.prog.String(), nil
	}
	prog, err := s.program()
	if err != nil {
		return "", err
	}
	return prog.String(), nil
}

// program compiles a launch for Start, without starting anything.
func (s *Spec) program() (*stage.Program, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	l, err := newLaunch(s)
	if err != nil {
		return nil, err
	}
	defer l.close()
	c, _, err := l.prepare()
	if err != nil {
		return nil, err
	}
	return c.compile(), nil
}
