//go:build linux

package nsexec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// Start launches the spec as a child of this process and returns when the
// program has been executed, or could not be.
//
// A launch that fails returns a [*StartError], a [*SpecError] or another error
// and leaves nothing behind. A program that cannot be executed in the guest is
// no such failure: the process then exits with status 127 or 126, as a shell
// would have it, and [Status.ExecErr] says why.
func Start(s *Spec) (*Process, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	l, err := newLaunch(s)
	if err != nil {
		return nil, err
	}
	defer l.close()
	room := stage.NewRoom()
	defer room.Release()
	c, files, err := l.prepare()
	if err != nil {
		return nil, err
	}
	c.Builder = room.Builder()
	l.prog = c.compile()
	if l.linked, err = room.Image(l.prog); err != nil {
		return nil, err
	}
	if l.image, err = stage.Seal("postern-stage", l.linked); err != nil {
		return nil, err
	}
	return l.start(files)
}

// A launch is the host's side of a Start in progress.
type launch struct {
	spec    *Spec
	control socket
	theirs  int    // the other end of it, or -1
	null    int    // what the standard streams are that the caller has not given, or -1
	word    []byte // what lets the launch go on
	prog    *stage.Program
	linked  []byte
	image   *os.File
	stage   int // PID, until it is reaped
}

func (l *launch) close() {
	if l.control.File != nil {
		l.control.Close()
	}
	l.closeTheirs()
	if l.null >= 0 {
		unix.Close(l.null)
	}
	if l.image != nil {
		l.image.Close()
	}
}

func (l *launch) closeTheirs() {
	if l.theirs >= 0 {
		unix.Close(l.theirs)
		l.theirs = -1
	}
}

func newLaunch(s *Spec) (*launch, error) {
	control, theirs, err := newSockets()
	return &launch{spec: s, control: control, theirs: theirs, null: -1, word: []byte{1}}, err
}

// start executes the image with these descriptors.
func (l *launch) start(files descriptors) (*Process, error) {
	if err := l.fork(files); err != nil {
		return nil, err
	}
	runtime.KeepAlive(l.spec)
	l.closeTheirs()
	return l.await()
}

// prepare returns a compiler for the spec and the descriptors to start the
// launch with.
func (l *launch) prepare() (*compiler, descriptors, error) {
	s := l.spec
	files := descriptors{placed: make([]uintptr, 0, 8)}
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f != nil {
			files.placed = append(files.placed, f.Fd())
			continue
		}
		if l.null < 0 {
			var err error
			if l.null, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
				return nil, files, fmt.Errorf("open the guest's standard streams: %s: %w", os.DevNull, err)
			}
		}
		files.placed = append(files.placed, uintptr(l.null))
	}
	c := &compiler{spec: s, joins: map[int]int{}}
	place := func(fd uintptr) int {
		if s.KeepFDs { // every number may be the caller's: keep our own
			files.kept = append(files.kept, fd)
			return int(fd)
		}
		files.placed = append(files.placed, fd)
		return len(files.placed) - 1
	}
	for _, f := range s.Files {
		place(f.Fd())
	}
	for _, f := range s.StageFiles {
		place(f.Fd())
	}
	for _, t := range s.Namespaces.types() {
		if t.ns.file != nil {
			c.joins[t.flag] = place(t.ns.file.Fd())
		}
	}
	c.control = place(uintptr(l.theirs))
	return c, files, nil
}

func (l *launch) fork(files descriptors) error {
	step := &StartError{Step: "execute the launch image", On: l.image.Name()}
	image, done, err := l.outOfTheWay(files.placed)
	defer done()
	if err == nil {
		l.stage, err = spawnImage(image, l.spec.Launcher.comm(), files)
	}
	if err == nil {
		return nil
	}
	step.Errno = errnoOf(err)
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) == nil && uint64(len(files.placed)) >= rl.Cur {
		step.Errno = unix.EMFILE // however the kernel says it
	}
	step.Hint = execHint(step.Errno)
	return step
}

// outOfTheWay gives files other numbers here that would be overwritten before
// their turn comes, and the image one that will not be.
func (l *launch) outOfTheWay(files []uintptr) (image uintptr, done func(), err error) {
	var dups []int
	done = func() {
		for _, fd := range dups {
			unix.Close(fd)
		}
	}
	up := func(fd uintptr) (uintptr, error) {
		n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, len(files))
		if err == nil {
			dups = append(dups, n)
		}
		return uintptr(n), err
	}
	for i, fd := range files {
		if fd < uintptr(i) {
			if files[i], err = up(fd); err != nil {
				return 0, done, err
			}
		}
	}
	image = l.image.Fd()
	if image < uintptr(len(files)) {
		image, err = up(image)
	}
	return image, done, err
}

func execHint(e unix.Errno) string {
	switch e {
	case unix.EACCES:
		return "anonymous files cannot be executed here: vm.memfd_noexec is 2, or a security module forbids it"
	case unix.ENOENT:
		return "/proc is not mounted here"
	case unix.EAGAIN:
		return "the limit on processes is reached"
	case unix.EMFILE, unix.ENFILE:
		return "no more descriptors: raise RLIMIT_NOFILE or pass fewer"
	}
	return ""
}

func errnoOf(err error) unix.Errno {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EIO
}

// await follows the launch until the program runs.
func (l *launch) await() (*Process, error) {
	p := &Process{linger: l.spec.Init && l.spec.Launcher.linger(), done: make(chan struct{})}
	if l.spec.Namespaces.PID == Share && !l.spec.Launcher.announces() { // the stage itself becomes the program
		err := l.hold(p, message{Record: stage.Record{A: int64(l.stage)}, fd: -1})
		if err == nil {
			err = l.control.goOn(l.word)
		}
		if err != nil {
			return nil, l.abandon(p, err)
		}
	}
	for {
		rec, err := l.control.receive(true)
		switch {
		case err == io.EOF && p.held && !l.spec.Init:
			// The socket closes on exec; this is how a program without an
			// init reports that it runs. A process that died looks the same
			// and its status will tell.
			p.eof = true
			return l.run(p), nil
		case err == io.EOF:
			return nil, l.abandon(p, ErrKilled)
		case err != nil:
			return nil, l.abandon(p, err)
		}
		switch rec.Kind {
		case stage.Failed:
			return nil, l.abandon(p, l.failure(rec.Record))
		case stage.Unshared:
			err = l.writeMaps()
			if err == nil {
				err = l.control.goOn(l.word)
			}
		case stage.Started:
			err = l.started(p, rec)
		case stage.Terminal:
			err = l.keepTerminal(p, rec)
		case stage.ExecError:
			p.execErr = unix.Errno(-rec.B)
			p.execStatus = int(rec.C)
			return l.run(p), nil
		case stage.Running:
			return l.run(p), nil
		}
		if err != nil {
			return nil, l.abandon(p, err)
		}
	}
}

func (l *launch) keepTerminal(p *Process, rec message) error {
	if rec.lost != nil {
		return &StartError{Step: DoTerminal, Errno: errnoOf(rec.lost), Hint: execHint(errnoOf(rec.lost))}
	}
	unix.SetNonblock(rec.fd, true)
	p.terminal = os.NewFile(uintptr(rec.fd), "guest terminal")
	return nil
}

// started takes hold of the guest's first process. Whoever is to be told of it
// is, and only then it goes on.
func (l *launch) started(p *Process, rec message) error {
	x := l.spec.Launcher
	pid := int(rec.A)
	if p.held { // the init is a child of the process this is held by
		var err error
		if pid, err = onlyChild(p.pid); err != nil {
			return err
		}
	} else if err := l.hold(p, rec); err != nil {
		return err
	} else if !x.announces() || x.belowPID() { // or the init is yet to come
		return l.control.goOn(l.word)
	}
	if err := x.Announce(pid); err != nil {
		return err
	}
	return l.control.goOn(l.word)
}

// onlyChild returns the child of a process that has one, from a namespace
// where that has another number.
func onlyChild(pid int) (int, error) {
	path := fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("find the init below the PID namespace: %w", err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("find the init below the PID namespace: %s: %w", path, err)
	}
	return child, nil
}

// hold takes the pidfd of the process that is to be signalled, without which
// no guest may run: it waits for the host. Where the stage is that process there
// is no pidfd yet; if it ever goes on it was alive after the pidfd existed,
// which so cannot be a recycled PID's.
func (l *launch) hold(p *Process, rec message) error {
	p.pid, p.pidfd = int(rec.A), rec.fd
	err := rec.lost
	if err == nil && p.pidfd < 0 {
		p.pidfd, err = unix.PidfdOpen(p.pid, 0)
	}
	if err == nil {
		err = unix.SetNonblock(p.pidfd, true)
	}
	if err != nil {
		return &StartError{Step: "take hold of the init", Errno: errnoOf(err), Hint: "without a pidfd a stop could not be sure of reaching it"}
	}
	p.held = true
	return nil
}

// run hands over to the process once the launch has succeeded.
func (l *launch) run(p *Process) *Process {
	p.control, l.control = l.control, socket{}
	if !p.linger { // there is nothing to read before the end, which the pidfd tells
		p.control = p.control.unpolled()
	}
	p.poll = os.NewFile(uintptr(p.pidfd), "pidfd")
	p.started = time.Now()
	go func() {
		p.wait()
		runtime.Gosched() // whoever waits for the end need not wait for the rest
		l.reap(p)
	}()
	return p
}

// abandon ends a launch that failed and returns when nothing of it is left.
func (l *launch) abandon(p *Process, cause error) error {
	if p.held {
		unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
	}
	l.hangUp(p)
	l.reap(p)
	switch {
	case p.held:
		awaitPidfd(p.pidfd)
		unix.Close(p.pidfd)
	case p.pid != 0 && p.pid != l.stage:
		reapChild(p.pid)
	}
	if p.terminal != nil {
		p.terminal.Close()
	}
	return cause
}

// hangUp makes whatever still runs of a launch read end of file and exit. An
// init that has not been announced yet still is our child to wait for, so it
// takes hold of that.
func (l *launch) hangUp(p *Process) {
	err := l.control.hangUp()
	for err == nil && p.pid == 0 {
		var rec message
		if rec, err = l.control.receive(true); err == nil && rec.Kind == stage.Started {
			err = l.hold(p, rec)
		}
	}
	l.control.Close()
	l.control = socket{}
}

// reap waits for the stage, unless it is the guest itself.
func (l *launch) reap(p *Process) {
	if l.stage == 0 || p.pid == l.stage {
		return
	}
	reapChild(l.stage)
	l.stage = 0
}

func reapChild(pid int) {
	for {
		_, err := unix.Wait4(pid, nil, 0, nil)
		if err != unix.EINTR {
			return // ECHILD: somebody else in this process reaps every child
		}
	}
}

func (l *launch) failure(rec stage.Record) error {
	e := &StartError{Step: "run the launch program", Errno: unix.Errno(-rec.B)}
	if s, ok := l.prog.FailedStep(l.linked, rec); ok {
		e.Step, e.On = s.Do, s.On
	}
	e.Hint = hint(e.Step, e.Errno)
	return e
}
