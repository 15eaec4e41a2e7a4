//go:build linux

package nsexec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	l := &launch{spec: s}
	defer l.close()
	return l.start()
}

// A launch is the host's side of a Start in progress.
type launch struct {
	spec    *Spec
	control *os.File // our end of the control socket
	theirs  *os.File
	image   *os.File
	null    *os.File
	term    *os.File
	prog    *stage.Program
	linked  []byte
	stage   int // PID, until it is reaped
}

func (l *launch) close() {
	for _, f := range []*os.File{l.theirs, l.image, l.null, l.control, l.term} {
		if f != nil {
			f.Close()
		}
	}
}

func (l *launch) start() (*Process, error) {
	if err := l.socket(); err != nil {
		return nil, err
	}
	files, err := l.prepare()
	if err != nil {
		return nil, err
	}
	if err := l.fork(files); err != nil {
		return nil, err
	}
	runtime.KeepAlive(l.spec)
	l.theirs.Close()
	l.theirs = nil
	return l.await()
}

func (l *launch) socket() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create the control socket of a launch: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return fmt.Errorf("create the control socket of a launch: %w", err)
	}
	l.control = os.NewFile(uintptr(fds[0]), "launch control")
	l.theirs = os.NewFile(uintptr(fds[1]), "launch control, stage")
	return nil
}

// prepare compiles the spec and returns the descriptors to start it with, by
// the number each is to have.
func (l *launch) prepare() ([]uintptr, error) {
	s := l.spec
	files := make([]uintptr, 0, 8)
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if f == nil {
			if l.null == nil {
				null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
				if err != nil {
					return nil, fmt.Errorf("open the guest's standard streams: %w", err)
				}
				l.null = null
			}
			f = l.null
		}
		files = append(files, f.Fd())
	}
	c := compiler{spec: s, joins: map[int]int{}}
	place := func(fd uintptr) int {
		if s.KeepFDs { // every number may be the caller's: keep our own
			return int(fd)
		}
		files = append(files, fd)
		return len(files) - 1
	}
	for _, f := range s.Files {
		place(f.Fd())
	}
	for _, f := range s.StageFiles {
		place(f.Fd())
	}
	var inherit []uintptr
	for _, t := range s.Namespaces.types() {
		if t.ns.file != nil {
			c.joins[t.flag] = place(t.ns.file.Fd())
			inherit = append(inherit, t.ns.file.Fd())
		}
	}
	c.control = place(l.theirs.Fd())
	inherit = append(inherit, l.theirs.Fd())
	if s.KeepFDs {
		for _, fd := range inherit {
			if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
				return nil, fmt.Errorf("pass descriptor %d to the launch: %w", fd, err)
			}
		}
	}
	l.prog = c.compile()
	var err error
	if l.linked, err = l.prog.Image(); err != nil {
		return nil, err
	}
	l.image, err = stage.Seal("postern-stage", l.linked)
	return files, err
}

func (l *launch) fork(files []uintptr) error {
	image, done, err := l.apart(files)
	defer done()
	step := &StartError{Step: "execute the launch image", On: fmt.Sprintf("/proc/self/fd/%d", image)}
	if err == nil {
		// The runtime uses vfork for this, whose cost does not depend on the
		// size of this process, as long as no namespace flags are asked for.
		l.stage, err = syscall.ForkExec(step.On, []string{l.spec.Launcher.comm()}, &syscall.ProcAttr{Files: files})
	}
	if err == nil {
		return nil
	}
	l.stage = 0
	step.Errno = errnoOf(err)
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) == nil && uint64(len(files)) >= rl.Cur {
		step.Errno = unix.EMFILE // however the kernel says it
	}
	step.Hint = execHint(step.Errno)
	return step
}

// apart keeps ForkExec from overwriting descriptors it is not told of, the
// image's and those that KeepFDs passes on: it takes numbers right behind the
// highest in files for its own pipe and for files that are in the way of
// others. So none may be in the way, and nothing may lie behind.
func (l *launch) apart(files []uintptr) (image uintptr, done func(), err error) {
	var dups []int
	done = func() {
		for _, fd := range dups {
			unix.Close(fd)
		}
	}
	image = l.image.Fd()
	high := slices.Max(files) + 1
	if l.spec.KeepFDs {
		if high, err = behindAll(); err != nil {
			return image, done, err
		}
	}
	up := func(fd, above uintptr) (uintptr, error) {
		n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, int(above))
		if err == nil {
			dups = append(dups, n)
		}
		return uintptr(n), err
	}
	for i, fd := range files {
		if fd < uintptr(i) || l.spec.KeepFDs && fd != uintptr(i) {
			if files[i], err = up(fd, high); err != nil {
				return image, done, err
			}
			high = files[i] + 1
		}
	}
	if image <= high {
		image, err = up(image, high+1)
	}
	return image, done, err
}

// behindAll returns a number that is above every open descriptor's.
func behindAll() (uintptr, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	high := 2
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			high = max(high, fd)
		}
	}
	return uintptr(high + 1), nil
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
	p := &Process{linger: l.spec.Init && l.spec.Launcher.linger(), control: l.control, done: make(chan struct{})}
	if l.spec.Namespaces.PID == Share && !l.spec.Launcher.announces() { // the stage itself becomes the program
		if err := l.hold(p, l.stage); err != nil {
			return nil, l.abandon(p, err)
		}
	}
	for {
		rec, _, err := l.receive()
		switch {
		case err == io.EOF && p.pidfd >= 0 && p.pid != 0 && !l.spec.Init:
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
			return nil, l.abandon(p, l.failure(rec))
		case stage.Unshared:
			err = l.writeMaps()
			if err == nil {
				_, err = l.control.Write([]byte{1})
			}
		case stage.Started:
			err = l.started(p, int(rec.A))
		case stage.Terminal:
			p.terminal, l.term = l.term, nil
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

// started takes hold of the guest's first process. Whoever is to be told of it
// is, and only then it goes on.
func (l *launch) started(p *Process, pid int) error {
	x := l.spec.Launcher
	switch {
	case !x.announces():
		return l.hold(p, pid)
	case x.belowPID() && !p.held:
		return l.hold(p, pid) // the init is yet to come, as a child of this one
	case x.belowPID():
		var err error
		if pid, err = onlyChild(p.pid); err != nil {
			return err
		}
	default:
		if err := l.holdQuietly(p, pid); err != nil {
			return err
		}
	}
	if err := x.Announce(pid); err != nil {
		return err
	}
	return l.goOn()
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

// hold opens the pidfd of the process that is to be signalled and lets it go
// on. It waits for our byte, and if that is ever answered it was alive after
// the pidfd existed: the pidfd cannot be a recycled one's.
func (l *launch) hold(p *Process, pid int) error {
	if err := l.holdQuietly(p, pid); err != nil {
		return err
	}
	return l.goOn()
}

func (l *launch) holdQuietly(p *Process, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return &StartError{Step: "take hold of the init (pidfd_open)", Errno: errnoOf(err), Hint: "a stop could not be sure of reaching it"}
	}
	p.pid, p.pidfd, p.held = pid, fd, true
	return nil
}

func (l *launch) goOn() error {
	_, err := l.control.Write([]byte{1})
	if errors.Is(err, unix.EPIPE) { // it has failed already and said why
		err = nil
	}
	return err
}

// run hands over to the process once the launch has succeeded.
func (l *launch) run(p *Process) *Process {
	l.control = nil
	p.started = time.Now()
	go func() {
		p.wait()
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
	if p.held {
		waitPidfd(p.pidfd)
		unix.Close(p.pidfd)
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
	defer l.control.Close()
	conn, err := l.control.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) })
	for err == nil && !p.held {
		var rec stage.Record
		if rec, _, err = l.receive(); err == nil && rec.Kind == stage.Started {
			err = l.holdQuietly(p, int(rec.A))
		}
	}
}

// reap waits for the stage, unless it is the guest itself.
func (l *launch) reap(p *Process) {
	if l.stage == 0 || p.pid == l.stage {
		return
	}
	for {
		_, err := unix.Wait4(l.stage, nil, 0, nil)
		if err != unix.EINTR {
			break // ECHILD: somebody else in this process reaps every child
		}
	}
	l.stage = 0
}

func (l *launch) failure(rec stage.Record) error {
	e := &StartError{Step: "run the launch program", Errno: unix.Errno(-rec.B)}
	if i, ok := l.prog.FailedIndex(l.linked, rec); ok {
		e.Step, e.On = l.prog.Ops[i].Step.Do, l.prog.Ops[i].Step.On
	}
	e.Hint = hint(e.Step, e.Errno)
	return e
}

// receive reads one record and what comes with it.
func (l *launch) receive() (stage.Record, []byte, error) {
	buf := make([]byte, 512)
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, err := recvmsg(l.control, buf, oob)
	if err != nil {
		return stage.Record{}, nil, fmt.Errorf("read the status of a launch: %w", err)
	}
	if n == 0 {
		return stage.Record{}, nil, io.EOF
	}
	rec, err := stage.ParseRecord(buf[:n])
	if err == nil && oobn > 0 {
		err = l.keepTerminal(oob[:oobn])
	}
	return rec, buf[stage.RecordSize:n], err
}

func (l *launch) keepTerminal(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return stage.ErrRecord
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return stage.ErrRecord
	}
	unix.SetNonblock(fds[0], true)
	l.term = os.NewFile(uintptr(fds[0]), "guest terminal")
	return nil
}

// recvmsg receives on a socket the runtime polls.
func recvmsg(f *os.File, buf, oob []byte) (n, oobn int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	rerr := conn.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			// A peer that is gone with bytes of ours unread is reported once,
			// ahead of what it sent before.
			if err != unix.EINTR && err != unix.ECONNRESET {
				return err != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = rerr
	}
	return max(n, 0), oobn, err
}
