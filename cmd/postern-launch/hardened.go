//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// hardenedFailed is the exit status of a launcher that could not launch: one
// that shells leave free.
const hardenedFailed = 125

const hardenedPrefix = "postern-launch: "

// hardenedMain runs a command behind the whole wall, and returns the exit
// status if there is anybody left to exit.
func hardenedMain(args []string) int {
	parent := unix.Getppid()
	c, err := parseHardened(args)
	switch {
	case err != nil:
	case unix.Getuid() != unix.Geteuid() || unix.Getgid() != unix.Getegid():
		err = errors.New("is installed set-user-ID or set-group-ID, and would act with rights its caller lacks: remove these bits (chmod u-s,g-s)")
	case c.help:
		fmt.Print(hardenedUsage)
		return 0
	case c.verify:
		if err = c.doVerify(); err == nil {
			return 0
		}
	default:
		var status int
		if status, err = c.run(parent); err == nil {
			return status
		}
	}
	fmt.Fprintln(os.Stderr, hardenedPrefix+oneLine(err))
	return hardenedFailed
}

// oneLine keeps joined errors on the one line that scripts expect.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func (c *hardenedCall) run(parent int) (int, error) {
	if err := c.prepare(); err != nil {
		return 0, err
	}
	s, err := c.spec()
	if err != nil {
		return 0, err
	}
	s.Launcher = &nsexec.Launcher{
		Prefix: hardenedPrefix + "launch failed: ", FailStatus: hardenedFailed, ExecPrefix: hardenedPrefix,
		Forward: true, DieWithParent: true, Parent: parent,
	}
	if c.explain {
		text, err := s.Explain()
		fmt.Print(text)
		return 0, err
	}
	if c.terminal {
		s.Launcher = nil
		return runInTerminal(s)
	}
	takeMask()
	return 0, nsexec.Exec(s)
}

// prepare checks what the guest gets from this process, and makes the
// workspace.
func (c *hardenedCall) prepare() error {
	for fd, name := range []string{"standard input", "standard output", "standard error"} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return fmt.Errorf("%s is a directory, which would be a way out of the guest's root", name)
		}
	}
	p := &c.profile
	if p.Workspace == "" || c.explain {
		return nil
	}
	if err := os.MkdirAll(p.Workspace, 0o700); err != nil {
		return fmt.Errorf("make the workspace: %w", err)
	}
	_ = p.ShareWorkspace(p.Workspace) // where the mode may not be changed it stays as it is
	return nil
}

func (c *hardenedCall) spec() (*nsexec.Spec, error) {
	s, err := c.profile.Spec(c.command)
	if err != nil {
		return nil, err
	}
	for _, l := range c.limits {
		s.Limits = slices.DeleteFunc(s.Limits, func(old pidone.Limit) bool { return old.Resource == l.Resource })
		s.Limits = append(s.Limits, l)
	}
	return s, nil
}

// doVerify makes the launch but for the command.
func (c *hardenedCall) doVerify() error {
	if c.profile.NoSeccomp {
		return errors.New("seccomp is disabled; refusing to treat this as a hardened sandbox")
	}
	if len(c.command) == 0 {
		c.command = []string{"true"}
	}
	if err := c.prepare(); err != nil {
		return err
	}
	s, err := c.spec()
	if err != nil {
		return err
	}
	if err := nsexec.Verify(context.Background(), s); err != nil {
		return fmt.Errorf("this machine cannot run the hardened sandbox: %w", err)
	}
	fmt.Println("postern-launch: the hardened sandbox works here.")
	return nil
}
