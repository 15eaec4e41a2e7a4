//go:build linux

package nsexec

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Verify finds out whether this machine can make the launch that s describes.
// It makes it, all of it, but for a program that the guest does not have: s's
// own, and any other of the guest, is not run.
//
// If the launch fails the error joins its error, as from [Start], to what
// [Preflight] finds lacking, if that is anything. When ctx ends the launch is
// given up and the error is the context's; only building the wall, which waits
// for nothing but the file systems it is made of, is not interrupted.
func Verify(ctx context.Context, s *Spec) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := startNothing(ctx, s)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return errors.Join(Preflight(), err)
}

func startNothing(ctx context.Context, s *Spec) error {
	const nothing = "/run/postern/nothing"
	trial := *s
	trial.Path, trial.Args = nothing, []string{nothing}
	p, err := Start(&trial)
	if err != nil {
		return err
	}
	if t := p.Terminal(); t != nil {
		defer t.Close()
	}
	st, err := p.Wait(ctx)
	switch {
	case err != nil:
		p.Signal(unix.SIGKILL)
		<-p.Done()
		return err
	case st.ExecErr == unix.ENOENT:
		return nil
	case st.ExecErr != 0:
		return fmt.Errorf("execute a program: %w", st.ExecErr)
	}
	return fmt.Errorf("the trial guest ended with status %d", st.ExitCode)
}
