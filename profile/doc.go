// Package profile describes walls and the commands behind them: the values
// that package postern makes sandboxes of, and what they compile to.
//
// Whoever runs guests uses package postern, which has all these types under
// its own name. This package is for a program that makes one launch itself
// and wants to stay small, as postern-launch does: it knows no hatches, no
// workspace reader and no checkpoints, and links neither net nor os/user.
//
//	p := profile.Profile{Workspace: "/srv/jobs/1"}
//	spec, err := p.Spec([]string{"python3", "job.py"})
//	...
//	err = nsexec.Exec(spec)
//
// The values build and are checked on every operating system. What they
// compile to, a launch of package nsexec, there is on Linux only.
package profile
