package postern

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/guesttext"
	"github.com/populationgenomics/postern-go/profile"
	"github.com/populationgenomics/postern-go/workspace"
)

// A Sandbox is a wall that any number of runs go through, one after the other
// or at once. They share the workspace and the hatches and nothing else. Its
// methods may be called from any goroutine.
type Sandbox struct {
	profile   Profile
	hatches   []hatch.Hatch
	log       *slog.Logger
	workspace string // host path, or empty if in memory
	private   bool   // the workspace is ours to remove
	oom       oomCounter
	templates templates

	mu     sync.Mutex
	closed bool
	live   map[*Process]struct{}
	starts sync.WaitGroup // starts that were let in before the sandbox closed
}

// An Option is a setting of a sandbox that is no part of its profile.
type Option func(*Sandbox)

// WithHatch gives every run these hatches: each serves while at least one run
// goes on, and the guest finds it at [hatch.GuestPath], which [hatch.EnvVar]
// tells it. At most one may be unnamed. The sandbox does not close them; they
// can be shared.
func WithHatch(hatches ...hatch.Hatch) Option {
	return func(s *Sandbox) { s.hatches = append(s.hatches, hatches...) }
}

// WithLogger makes the sandbox log. The levels keep a guest from driving the
// log: WARN is evidence about the host, what a guest can cause at its own rate
// is DEBUG. Text that a guest chose is escaped and capped. Hatches have loggers
// of their own.
func WithLogger(l *slog.Logger) Option {
	return func(s *Sandbox) { s.log = l.With("logger", "postern") }
}

// New makes a sandbox. It makes the workspace, and starts nothing.
//
// The error joins all problems of the profile and the options: each is a
// [*FieldError], or an error of package hatch.
func New(p Profile, options ...Option) (*Sandbox, error) {
	s := &Sandbox{log: slog.New(slog.DiscardHandler), live: map[*Process]struct{}{}}
	for _, o := range options {
		o(s)
	}
	s.profile = p.Clone()
	if err := errors.Join(s.profile.Validate(), hatch.CheckSet(s.hatches)); err != nil {
		return nil, err
	}
	if err := s.makeWorkspace(); err != nil {
		return nil, err
	}
	s.oom = openOOMCounter()
	return s, nil
}

func (s *Sandbox) makeWorkspace() error {
	var err error
	switch p := s.profile; {
	case p.WorkspaceSize != 0:
		return nil
	case p.Workspace == "":
		s.workspace, err = os.MkdirTemp("", "postern-ws-*")
		s.private = err == nil
	default:
		if s.workspace, err = filepath.Abs(p.Workspace); err == nil {
			err = os.MkdirAll(s.workspace, 0o777)
		}
	}
	if err != nil {
		return &FieldError{Field: "Profile.Workspace", Reason: "cannot be made: " + err.Error(), Err: err}
	}
	return nil
}

// Workspace returns the host path of the workspace, or "" if it is in memory.
// What a guest put there may lead out of it: use Accessor to look.
func (s *Sandbox) Workspace() string { return s.workspace }

// Accessor opens the workspace in a way that nothing the guest planted leads
// out of. The caller closes it.
func (s *Sandbox) Accessor() (*workspace.Workspace, error) {
	if s.workspace == "" {
		return nil, fmt.Errorf("postern: the workspace is in the guest's memory, where the host cannot look: %w", fs.ErrNotExist)
	}
	return workspace.Open(s.workspace)
}

// Close stops the runs that still go on, as [Process.Close] does, and removes
// the workspace if New made it in a temporary directory.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	s.starts.Wait()
	var all sync.WaitGroup
	s.mu.Lock()
	for p := range s.live {
		all.Go(func() { p.Close() })
	}
	s.mu.Unlock()
	all.Wait()
	if again {
		return nil
	}
	s.oom.close()
	s.templates.close()
	if !s.private {
		return nil
	}
	if err := removeAll(s.workspace); err != nil {
		s.log.Warn("the workspace could not be removed", "workspace", s.workspace, "error", guesttext.Text(err.Error()))
		return fmt.Errorf("postern: remove the workspace: %w", err)
	}
	return nil
}

// removeAll removes a directory in which a guest may have done anything.
func removeAll(dir string) error {
	ws, err := workspace.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = ws.RemoveAll(".")
	ws.Close()
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// Run runs a program and returns when it has ended: argv is the program,
// looked up along the guest's PATH, and its arguments. Standard input is empty.
//
// A non-zero exit, a time-out and an output limit are no errors but a result.
// The error is an [*IsolationError] if the wall could not be built, and wraps
// that of ctx if its end stopped the run, which gets SIGTERM and a second
// later SIGKILL; the result then has the output up to there.
func (s *Sandbox) Run(ctx context.Context, argv ...string) (Result, error) {
	return s.RunCommand(ctx, Command{Args: argv})
}

// RunBash is Run of "bash -c script".
func (s *Sandbox) RunBash(ctx context.Context, script string) (Result, error) {
	return s.RunCommand(ctx, Bash(script))
}

// RunPython is Run of code in Profile.Python, as "python -u FILE" would run it.
func (s *Sandbox) RunPython(ctx context.Context, code string) (Result, error) {
	return s.RunCommand(ctx, Python(code))
}

// RunCommand is Run with everything a [Command] can say.
func (s *Sandbox) RunCommand(ctx context.Context, c Command) (Result, error) {
	if c.StdinPipe {
		return noResult, &FieldError{Field: "Command.StdinPipe", Reason: "is for StartCommand; use Input"}
	}
	p, err := s.StartCommand(ctx, c)
	if err != nil {
		return noResult, err
	}
	defer p.Close()
	if d := profile.OrDefault(s.profile.Timeout, DefaultTimeout); d > 0 {
		defer time.AfterFunc(d, func() { p.stop(TimedOut, 0, nil) }).Stop()
	}
	return p.Communicate(ctx)
}

var noResult = Result{ExitCode: -1}

// Start starts a program and returns when it runs. The caller closes the
// process. When ctx ends it is stopped: SIGTERM, and a second later SIGKILL.
func (s *Sandbox) Start(ctx context.Context, argv ...string) (*Process, error) {
	return s.StartCommand(ctx, Command{Args: argv})
}

// StartBash is Start of "bash -c script".
func (s *Sandbox) StartBash(ctx context.Context, script string) (*Process, error) {
	return s.StartCommand(ctx, Bash(script))
}

// StartPython is Start of code in Profile.Python, as RunPython runs it.
func (s *Sandbox) StartPython(ctx context.Context, code string) (*Process, error) {
	return s.StartCommand(ctx, Python(code))
}

// StartCommand is Start with everything a [Command] can say.
func (s *Sandbox) StartCommand(ctx context.Context, c Command) (*Process, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, stoppedBy(ctx)
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.starts.Done()
	p, err := s.start(c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.live[p] = struct{}{}
	s.mu.Unlock()
	p.follow(ctx)
	return p, nil
}

func (s *Sandbox) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.starts.Add(1)
	return nil
}

func (s *Sandbox) forget(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, p)
}

// start opens the hatches and launches.
func (s *Sandbox) start(c Command) (*Process, error) {
	var held resources
	err := s.serve(&held)
	if err == nil {
		err = s.launch(c, &held)
	}
	if err != nil {
		held.release()
		return nil, err
	}
	return newProcess(s, &held), nil
}

func (s *Sandbox) serve(held *resources) error {
	for _, h := range s.hatches {
		stop, err := h.Serve()
		if err != nil {
			return fmt.Errorf("postern: open hatch %q: %w", h.Name(), err)
		}
		held.stops = append(held.stops, stop)
	}
	return nil
}

const verifyTimeout = 30 * time.Second

// Verify makes one launch with everything the profile has, to find out whether
// this machine can build the wall. A host that is to serve untrusted code
// calls it first and refuses if it returns an error, an [*IsolationError] that
// says what is lacking and what to do. A profile with NoSeccomp is refused.
//
// It runs no program: the launch ends when one would be executed.
func (s *Sandbox) Verify(ctx context.Context) error {
	if s.profile.NoSeccomp {
		return &IsolationError{Reason: "seccomp is disabled; refusing to treat this as a hardened sandbox"}
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := s.trial(ctx); err != nil {
		return &IsolationError{Reason: "sandbox failed to launch", Err: err}
	}
	return nil
}

// trial is start for a launch that runs no program.
func (s *Sandbox) trial(ctx context.Context) error {
	if ctx.Err() != nil {
		return stoppedBy(ctx)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.starts.Done()
	var held resources
	defer held.release()
	if err := s.serve(&held); err != nil {
		return err
	}
	return s.verify(ctx)
}

// Available reports whether guests can be run on this machine by this process.
// It makes a trial launch, which takes a few milliseconds. [Sandbox.Verify]
// says why not.
func Available() bool { return preflight() == nil }
