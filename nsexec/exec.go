//go:build linux

package nsexec

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

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
// Exec returns only if the launch could not begin.
func Exec(s *Spec) error {
	prog, fds, err := execProgram(s)
	if err != nil {
		return err
	}
	if s.apart() {
		return execApart(s, prog, fds)
	}
	image, err := seal(prog)
	if err != nil {
		return err
	}
	defer image.Close()
	for _, fd := range fds {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("pass descriptor %d to the launch: %w", fd, err)
		}
	}
	return become(image, s.Launcher.comm())
}

func seal(p *stage.Program) (*os.File, error) {
	linked, err := p.Image()
	if err != nil {
		return nil, err
	}
	return stage.Seal("postern-stage", linked)
}

// become replaces this process by a sealed program, and returns only if it
// cannot.
func become(image *os.File, comm string) error {
	// This also gives back the soft limit on descriptors, which the runtime
	// has raised for itself.
	err := syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", image.Fd()), []string{comm}, nil)
	if err != syscall.ENOENT {
		return &StartError{Step: "execute the launch image", Errno: errnoOf(err), Hint: execHint(errnoOf(err))}
	}
	// There is no /proc here, but this call needs none.
	empty, _ := unix.BytePtrFromString("")
	name, err := unix.BytePtrFromString(comm)
	if err != nil {
		return err
	}
	argv := [2]*byte{name}
	var envp [1]*byte
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, image.Fd(), uintptr(unsafe.Pointer(empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return &StartError{Step: "execute the launch image", Errno: errno, Hint: execHint(errno)}
}

// execProgram compiles a launch for Exec and returns the descriptors of ours
// that it uses.
func execProgram(s *Spec) (*stage.Program, []uintptr, error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	for _, bad := range []struct {
		is    bool
		field string
	}{{s.Launcher == nil, "Launcher"}, {s.Terminal, "Terminal"}, {s.UIDMap != nil, "UIDMap"}, {len(s.Files) > 0, "Files"},
		{len(s.StageFiles) > 0, "StageFiles"}, {s.Stdin != nil || s.Stdout != nil || s.Stderr != nil, "Stdin"}} {
		if bad.is {
			return nil, nil, &SpecError{Field: bad.field, Reason: "does not go with Exec"}
		}
	}
	c := compiler{spec: s, monitor: true, control: -1, joins: map[int]int{}}
	var fds []uintptr
	for _, t := range s.Namespaces.types() {
		if t.ns.file != nil {
			c.joins[t.flag] = int(t.ns.file.Fd())
			fds = append(fds, t.ns.file.Fd())
		}
	}
	if s.apart() {
		told, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return nil, nil, fmt.Errorf("make an eventfd for the launch: %w", err)
		}
		c.told = told
		fds = append(fds, uintptr(told)) // the last one, see execApart
	}
	return c.compile(), fds, nil
}

// Explain returns the program that [Exec] would run if s.Launcher is set, and
// [Start] otherwise, one operation a line.
func (s *Spec) Explain() (string, error) {
	if s.Launcher != nil && !s.Terminal {
		prog, fds, err := execProgram(s)
		if err != nil {
			return "", err
		}
		text := prog.String()
		if s.apart() {
			told := int(fds[len(fds)-1])
			unix.Close(told)
			text += "\nmonitor:\n" + apartMonitor(s, 0, told).String()
		}
		return text, nil
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
	if _, err := l.prepare(); err != nil {
		return nil, err
	}
	return l.prog, nil
}
