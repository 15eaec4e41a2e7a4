package postern

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/populationgenomics/postern-go/profile"
)

// DefaultGrace is a usual time to let a command clean up in.
const DefaultGrace = 5 * time.Second

// closeGrace is what a command gets when its context ends or its process is
// closed.
const closeGrace = time.Second

// A Process is a run that goes on. Its output has one reader at a time, either
// Output or Communicate; every other method may be called from any goroutine.
//
// Close it: until then its hatches serve, and it holds descriptors, though no
// goroutine but the one that waits for its end.
type Process struct {
	sandbox *Sandbox
	*resources
	cleanup runtime.Cleanup
	reading atomic.Bool
	closing sync.Once
	unhook  func() bool // from the context of Start

	mu      sync.Mutex
	why     Reason // why it was stopped, if it was
	stopErr error  // and the context's error, if that did it
	kill    *time.Timer
	killAt  time.Time
}

// resources are what a process holds until it is closed.
type resources struct {
	guest  *guest
	output *output
	stdin  *os.File
	stops  []func()
}

func (r *resources) release() {
	if r.output != nil {
		r.output.close()
	}
	if r.stdin != nil {
		r.stdin.Close()
	}
	if r.guest != nil {
		r.guest.close()
	}
	for _, stop := range r.stops {
		stop()
	}
}

func newProcess(s *Sandbox, held *resources) *Process {
	p := &Process{sandbox: s, resources: held, unhook: func() bool { return true }}
	p.cleanup = runtime.AddCleanup(p, func(a abandoned) {
		a.log.Warn("a process was not closed; it is killed", "pid", a.held.guest.PID())
		a.held.guest.Signal(syscall.SIGKILL)
		a.held.release()
	}, abandoned{held, s.log})
	s.log.Debug("run started", "pid", p.PID())
	return p
}

type abandoned struct {
	held *resources
	log  *slog.Logger
}

// follow stops the process when ctx ends.
func (p *Process) follow(ctx context.Context) {
	if ctx.Done() != nil {
		p.unhook = context.AfterFunc(ctx, func() { p.stopFor(ctx) })
	}
}

func (p *Process) stopFor(ctx context.Context) {
	why := Stopped
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = TimedOut
	}
	p.stop(why, closeGrace, stoppedBy(ctx))
}

func stoppedBy(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("postern: run stopped: %w: %w", ctx.Err(), cause)
	}
	return fmt.Errorf("postern: run stopped: %w", ctx.Err())
}

// stop ends the run, with SIGKILL at once if there is no grace. The first
// reason is the one that counts.
func (p *Process) stop(why Reason, grace time.Duration, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sig := syscall.SIGTERM
	if grace <= 0 {
		sig = syscall.SIGKILL
	}
	// One SIGTERM is enough, and a second would interrupt the clean-up. What
	// asks again can only bring the end forward.
	if again := sig == syscall.SIGTERM && p.kill != nil; !again && p.guest.Signal(sig) != nil {
		return // it has ended
	}
	if p.why == NotRun {
		p.why, p.stopErr = why, cause
	}
	if sig == syscall.SIGKILL {
		return
	}
	at := time.Now().Add(grace)
	switch {
	case p.kill == nil:
		guest := p.guest
		p.kill = time.AfterFunc(grace, func() { guest.Signal(syscall.SIGKILL) })
		p.killAt = at
	case at.Before(p.killAt):
		p.kill.Reset(grace)
		p.killAt = at
	}
}

// Terminate asks the command to end: its process group gets SIGTERM, which it
// can trap to clean up, and after the grace everything in the guest gets
// SIGKILL. It returns at once; keep reading to see what the command says on its
// way out. With no grace it is Kill. A process that has ended is left alone, and
// one that is being stopped already gets no second SIGTERM, only the shorter of
// the two graces.
func (p *Process) Terminate(grace time.Duration) { p.stop(Stopped, grace, nil) }

// Kill ends the guest at once.
func (p *Process) Kill() { p.stop(Stopped, 0, nil) }

// Signal sends a signal to the command's process group; SIGKILL ends the whole
// guest. The error is [os.ErrProcessDone] if it has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.guest.Signal(sig) }

// PID returns the process ID of the guest's init on the host. It is for
// display: by the time it is used it may be another's. Use Signal or Pidfd.
func (p *Process) PID() int { return p.guest.PID() }

// Pidfd returns a pidfd of the guest's init, which polls as readable when the
// guest has ended. The caller closes it. The error is [os.ErrProcessDone] if it
// has ended.
func (p *Process) Pidfd() (*os.File, error) { return p.guest.Dup() }

// ExitCode returns the command's exit code as [Result] has it, and false while
// the guest is alive.
func (p *Process) ExitCode() (code int, ended bool) {
	select {
	case <-p.guest.Done():
		return p.result(nil, nil).ExitCode, true
	default:
		return -1, false
	}
}

// Terminated reports whether the run was stopped from outside, by Terminate,
// Kill, a time-out or another limit, rather than ending by itself.
func (p *Process) Terminated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why != NotRun
}

// Stdin writes to the command's standard input. It is nil unless the
// [Command] asked for StdinPipe or Terminal. Close it to let the command see
// the end of a pipe.
func (p *Process) Stdin() io.WriteCloser {
	if p.stdin == nil {
		return nil
	}
	return p.stdin
}

// Terminal returns the host's side of the command's pseudo-terminal, or nil.
// Reading from it competes with Output. Close of the process closes it.
func (p *Process) Terminal() *os.File { return p.guest.Terminal() }

// Resize tells the command's terminal its size; programs in the foreground get
// SIGWINCH.
func (p *Process) Resize(size WindowSize) error {
	t := p.Terminal()
	if t == nil {
		return errors.New("postern: the process has no terminal")
	}
	return resize(t, size)
}

const chunk = 64 << 10

// Output yields the guest's output as it arrives, from both streams in one
// order. A chunk can end in the middle of a line or a character, and belongs
// to the loop body.
//
// The loop ends when the guest has ended and all its output is delivered, or
// earlier if the command closes its output itself; Wait has the status in
// either case. A process the command leaves behind is gone with the guest and
// cannot hold it up. Output after the loop, or after an earlier break, goes on
// where that ended. It panics with [ErrConcurrentRead] when the output is
// being read already.
func (p *Process) Output() iter.Seq2[Stream, []byte] {
	return func(yield func(Stream, []byte) bool) {
		if !p.reading.CompareAndSwap(false, true) {
			panic(ErrConcurrentRead)
		}
		defer p.reading.Store(false)
		buf := make([]byte, chunk)
		for {
			s, n, err := p.output.read(buf)
			if err != nil || !yield(s, bytes.Clone(buf[:n])) {
				return
			}
		}
	}
}

// Communicate collects the output that Output has not delivered and returns
// when the guest has ended. If ctx ends first, the run is stopped as for
// [Sandbox.Run] and the error says so; the result still has the output.
func (p *Process) Communicate(ctx context.Context) (Result, error) {
	if !p.reading.CompareAndSwap(false, true) {
		return noResult, ErrConcurrentRead
	}
	defer p.reading.Store(false)
	defer context.AfterFunc(ctx, func() { p.stopFor(ctx) })()

	limit := profile.OrDefault(p.sandbox.profile.OutputLimit, DefaultOutputLimit)
	var stdout, stderr []byte
	buf := make([]byte, chunk)
	for {
		s, n, err := p.output.read(buf)
		if err != nil {
			break
		}
		if room := limit - int64(len(stdout)+len(stderr)); limit > 0 && int64(n) > room {
			p.stop(OutputLimit, 0, nil)
			n = int(room)
		}
		if s == Stderr {
			stderr = append(stderr, buf[:n]...)
		} else {
			stdout = append(stdout, buf[:n]...)
		}
	}
	<-p.guest.Done()
	r := p.result(stdout, stderr)
	p.mu.Lock()
	defer p.mu.Unlock()
	return r, p.stopErr
}

// Wait returns the exit code when the guest has ended, or the error of ctx if
// that comes first; the guest then goes on. A guest that fills a pipe which
// nobody reads does not end.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.guest.Done():
	case <-ctx.Done():
		return -1, context.Cause(ctx)
	}
	return p.result(nil, nil).ExitCode, nil
}

// result describes a guest that has ended.
func (p *Process) result(stdout, stderr []byte) Result {
	r := p.guest.result()
	r.Stdout, r.Stderr = stdout, stderr
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why != NotRun {
		r.Reason = p.why
	}
	if r.Reason == TimedOut {
		r.ExitCode = timedOutStatus
		r.Stderr = append(r.Stderr, timedOutNote...)
	}
	return r
}

// Close releases what the process holds, its hatches too. If the guest is
// still alive it is stopped first, with a second to clean up in, and what it
// still writes is discarded. It returns nil, when nothing of the guest is left.
func (p *Process) Close() error {
	p.closing.Do(func() {
		p.unhook()
		p.stop(Stopped, closeGrace, nil)
		if p.reading.CompareAndSwap(false, true) {
			buf := make([]byte, chunk)
			for {
				if _, _, err := p.output.read(buf); err != nil {
					break
				}
			}
			p.reading.Store(false)
		}
		<-p.guest.Done()
		p.mu.Lock()
		if p.kill != nil {
			p.kill.Stop()
		}
		p.mu.Unlock()
		r := p.result(nil, nil)
		p.sandbox.log.Debug("run ended", "pid", p.PID(), "reason", r.Reason.String(), "status", r.ExitCode, "wall", r.Wall)
		p.cleanup.Stop()
		p.release()
		p.sandbox.forget(p)
	})
	return nil
}
