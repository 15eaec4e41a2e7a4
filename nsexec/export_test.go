//go:build linux

package nsexec

import (
	"time"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// Compile returns the program of a launch by Start.
func Compile(s *Spec) (*stage.Program, error) { return s.program() }

// CompileExec returns the program of a launch by Exec.
func CompileExec(s *Spec) (*stage.Program, error) {
	x, err := newExecution(s, &holder{})
	if err != nil {
		return nil, err
	}
	x.events.close()
	return x.prog, nil
}

// StartAltered is Start with a program that has been changed behind the
// compiler's back.
func StartAltered(s *Spec, alter func(*stage.Program)) (*Process, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	l, err := newLaunch(s)
	if err != nil {
		return nil, err
	}
	defer l.close()
	c, files, err := l.prepare()
	if err != nil {
		return nil, err
	}
	l.prog = c.compile()
	alter(l.prog)
	if l.linked, err = l.prog.Image(); err != nil {
		return nil, err
	}
	if l.image, err = stage.Seal("postern-stage", l.linked); err != nil {
		return nil, err
	}
	return l.start(files)
}

// A Machine describes one that is not at hand.
type Machine struct {
	Arch, Seccomp, ProcFS bool
	Release               string
	Euid                  int
	Missing               []string
	Files                 map[string]string
}

// Lacks returns what Preflight finds without a launch on such a machine.
func Lacks(m Machine) []error {
	return lacks(facts{arch: m.Arch, release: m.Release, euid: m.Euid, missing: m.Missing, seccomp: m.Seccomp, procFS: m.ProcFS,
		file: func(path string) (string, bool) { s, ok := m.Files[path]; return s, ok }})
}

var (
	Explain = explain
	Hint    = hint
)

// StartHolder is what Exec does first. The holder waits for an hour.
func StartHolder() (pid int, dismiss func()) {
	h := newHolder(time.Hour)
	return h.pid, h.dismiss
}

// ResetsWithoutClone3 are the signals whose handlers the child of a launch
// resets where clone3 is hidden.
func ResetsWithoutClone3() (signals []uint) {
	s := &spawn{calls: []call{newCall(unix.SYS_EXECVEAT)}}
	s.withoutClone3()
	for _, c := range s.calls[:len(s.calls)-1] {
		signals = append(signals, c.args[0])
	}
	return signals
}
