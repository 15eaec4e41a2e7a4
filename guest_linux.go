package postern

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/workspace"
	"golang.org/x/sys/unix"
)

// A guest is a launched process and what else lasts until it is closed.
type guest struct {
	*nsexec.Process
	oom       oomCounter
	oomBefore uint64
	lock      *os.File // of the overlay's upper layer, or nil

	// The memory question must be asked when the guest ends, and once.
	once  sync.Once
	ended Result
}

func (g *guest) close() {
	if t := g.Terminal(); t != nil {
		t.Close()
	}
	g.lock.Close()
}

// status waits for the guest's end.
func (g *guest) status() nsexec.Status {
	st, _ := g.Wait(context.Background())
	return st
}

// result describes a guest that has ended.
func (g *guest) result() Result {
	g.once.Do(func() { g.ended = g.describe(g.status()) })
	return g.ended
}

func (g *guest) describe(st nsexec.Status) Result {
	r := Result{
		ExitCode: st.ExitCode, Signal: st.Signal, Reason: Exited,
		Wall: st.Wall, User: st.User, System: st.System, PeakMemory: st.MaxRSS,
	}
	if st.Signal != 0 {
		r.Reason = Signalled
		if st.Signal == unix.SIGKILL && g.oom.read() > g.oomBefore {
			r.Reason = OutOfMemory
		}
	}
	return r
}

// launch starts a command and puts what belongs to it into held.
func (s *Sandbox) launch(c Command, held *resources) error {
	spec, err := s.spec(c)
	if err != nil {
		return err
	}
	lock, err := s.claim()
	if err != nil {
		return err
	}
	g := &guest{oom: s.oom, oomBefore: s.oom.read(), lock: lock}
	f := files{stdout: -1, stderr: -1}
	defer f.close()
	if err := f.open(c, spec); err != nil {
		lock.Close()
		return err
	}
	if g.Process, err = s.templates.start(c, spec); err != nil {
		lock.Close()
		return launchError(err)
	}
	held.guest = g
	if err = f.hand(g, c, held); err != nil {
		g.Signal(unix.SIGKILL)
		<-g.Done()
	}
	return err
}

// verify makes the launch of a command but for the command.
func (s *Sandbox) verify(ctx context.Context) error {
	spec, err := s.profile.CommandSpec(s.workspace, Command{Args: []string{"true"}}, wayTo(s.hatches))
	if err != nil {
		return err
	}
	lock, err := s.claim()
	if err != nil {
		return err
	}
	defer lock.Close()
	return nsexec.Verify(ctx, spec)
}

// spec returns the launch of a command, or what a template still needs of it.
func (s *Sandbox) spec(c Command) (*nsexec.Spec, error) {
	if s.templates.of(c) != nil {
		return &nsexec.Spec{Path: c.Args[0], Args: c.Args, Env: s.profile.CommandEnv(c, wayTo(s.hatches))}, nil
	}
	return s.profile.CommandSpec(s.workspace, c, wayTo(s.hatches))
}

// claim makes ready what a launch uses of the host, and returns a lock to hold
// as long as its guest lives, or nil.
func (s *Sandbox) claim() (*os.File, error) {
	if s.workspace != "" {
		if err := s.profile.ShareWorkspace(s.workspace); err != nil {
			s.log.Debug("the mode of the workspace could not be changed", "workspace", s.workspace, "error", err)
		}
	}
	return s.profile.Overlay.Claim()
}

func launchError(err error) error {
	_, failed := errors.AsType[*nsexec.StartError](err)
	if failed || errors.Is(err, nsexec.ErrKilled) || errors.Is(err, nsexec.ErrUnsupportedArch) {
		return &IsolationError{Reason: "the wall could not be built", Err: err}
	}
	return fmt.Errorf("postern: %w", err)
}

// files are the descriptors around a launch.
type files struct {
	theirs         []*os.File // passed to the guest, closed when it has them
	stdout, stderr int        // ours
	stdin          *os.File   // ours
}

func (f *files) close() {
	for _, t := range f.theirs {
		t.Close()
	}
	for _, fd := range []int{f.stdout, f.stderr} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if f.stdin != nil {
		f.stdin.Close()
	}
}

func (f *files) open(c Command, spec *nsexec.Spec) (err error) {
	if c.Terminal != nil {
		spec.TerminalSize = unix.Winsize{Row: c.Terminal.Rows, Col: c.Terminal.Cols}
		return nil
	}
	if f.stdout, spec.Stdout, err = f.pipe(); err != nil {
		return err
	}
	if f.stderr, spec.Stderr, err = f.pipe(); err != nil {
		return err
	}
	switch {
	case c.Input != nil:
		// A sealed file instead of a pipe: nobody has to feed it.
		if spec.Stdin, err = stage.Seal("input", c.Input); err == nil {
			f.theirs = append(f.theirs, spec.Stdin)
			_, err = spec.Stdin.Seek(0, 0)
		}
	case c.StdinPipe:
		if spec.Stdin, f.stdin, err = os.Pipe(); err == nil {
			f.theirs = append(f.theirs, spec.Stdin)
		}
	}
	if err != nil {
		return fmt.Errorf("postern: open a guest's input: %w", err)
	}
	return nil
}

// pipe returns a pipe for the guest to write to.
func (f *files) pipe() (ours int, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, fmt.Errorf("postern: open a pipe for a guest's output: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "guest output")
	f.theirs = append(f.theirs, theirs)
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return -1, nil, fmt.Errorf("postern: open a pipe for a guest's output: %w", err)
	}
	return fds[0], theirs, nil
}

// hand gives our descriptors over to the process.
func (f *files) hand(g *guest, c Command, held *resources) error {
	if c.Terminal != nil {
		var err error
		if f.stdout, err = dup(g.Terminal()); err != nil {
			return fmt.Errorf("postern: open the guest's terminal: %w", err)
		}
		in, err := dup(g.Terminal())
		if err != nil {
			return fmt.Errorf("postern: open the guest's terminal: %w", err)
		}
		f.stdin = os.NewFile(uintptr(in), "guest terminal")
	}
	pidfd := -1
	if d, err := g.Dup(); err == nil {
		pidfd, err = dup(d)
		d.Close()
		if err != nil {
			return fmt.Errorf("postern: watch for the guest's end: %w", err)
		}
	} else if !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("postern: watch for the guest's end: %w", err)
	}
	stdout, stderr := f.stdout, f.stderr
	f.stdout, f.stderr = -1, -1
	var err error
	held.output, err = newOutput(pidfd, stdout, stderr)
	held.stdin, f.stdin = f.stdin, nil
	return err
}

// dup duplicates a descriptor and leaves the file's mode alone.
func dup(f *os.File) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	cerr := conn.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(cerr, err)
}

func resize(t *os.File, size WindowSize) error {
	conn, err := t.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return errors.Join(cerr, err)
}

// owner is the host's user and group that guests run as, if that is not the
// host program's own.
func (s *Sandbox) owner() *workspace.Owner {
	u := s.profile.HostUser()
	if u == nil {
		return nil
	}
	const unchanged = -1
	o := &workspace.Owner{UID: int(u.UID), GID: unchanged}
	if u.GID != nil {
		o.GID = int(*u.GID)
	}
	return o
}

func preflight() error { return nsexec.Preflight() }
